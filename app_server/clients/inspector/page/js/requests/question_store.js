// What the server asks this page and nobody has answered yet.

import { Emitter } from "/js/core/emitter.js";

/** Events: "changed". */
export class QuestionStore extends Emitter {
  /** Request id to {id, key, method, params, at}, oldest first; no two ever have the same key. */
  open = new Map();
  #asked = 0;

  constructor(connection) {
    super();
    this.connection = connection;
    connection.on("request", ({ id, method, params }) => {
      this.open.set(id, { id, key: ++this.#asked, method, params, at: Date.now() });
      this.emit("changed");
    });
    connection.on("notification", ({ method, params }) => {
      // Another client may have answered first, or the turn ended.
      if (method === "serverRequest/resolved") this.#remove(params.requestId);
    });
    connection.on("status", () => {
      // A lost connection takes its questions along; the next one is asked again.
      if (connection.isReady || this.open.size === 0) return;
      this.open.clear();
      this.emit("changed");
    });
  }

  /** The questions of a thread. */
  ofThread(threadId) {
    return [...this.open.values()].filter((question) => question.params?.threadId === threadId);
  }

  answer(question, result) {
    this.connection.reply(question.id, result);
    this.#remove(question.id);
  }

  refuse(question, error) {
    this.connection.refuse(question.id, error);
    this.#remove(question.id);
  }

  #remove(id) {
    if (this.open.delete(id)) this.emit("changed");
  }
}
