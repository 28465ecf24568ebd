// What the server asks this page and nobody has answered yet.

import { Emitter } from "/js/core/emitter.js";

/** Events: "changed"; "asked" and "lost" with a question, "settled" with {question, outcome}. */
export class QuestionStore extends Emitter {
  /**
   * Request id to {id, key, method, params, at, isExact}; no two ever have the same key. `at` is when it was asked, or,
   * if the server does not say so, when this page was asked.
   */
  open = new Map();
  #asked = 0;

  constructor(connection) {
    super();
    this.connection = connection;
    connection.on("request", ({ id, method, params }) => {
      // Not all say when they were asked first.
      const at = params?.startedAtMs ?? Date.now();
      const isExact = params?.startedAtMs !== undefined;
      const question = { id, key: ++this.#asked, method, params, at, isExact };
      this.open.set(id, question);
      this.emit("asked", question);
      this.emit("changed");
    });
    connection.on("notification", ({ method, params }) => {
      // Another client may have answered first, or the turn ended.
      if (method === "serverRequest/resolved") this.#settle(params.requestId, {});
    });
    connection.on("status", () => {
      // A lost connection takes its questions along; the next one is asked again.
      if (connection.isReady || this.open.size === 0) return;
      for (const question of this.open.values()) this.emit("lost", question);
      this.open.clear();
      this.emit("changed");
    });
  }

  /** All of them, the oldest first. */
  get oldestFirst() {
    return [...this.open.values()].sort((one, other) => one.at - other.at);
  }

  /** The questions of a thread. */
  ofThread(threadId) {
    return [...this.open.values()].filter((question) => question.params?.threadId === threadId);
  }

  answer(question, result) {
    this.connection.reply(question.id, result);
    this.#settle(question.id, { answer: result });
  }

  refuse(question, error) {
    this.connection.refuse(question.id, error);
    this.#settle(question.id, { error });
  }

  #settle(id, outcome) {
    const question = this.open.get(id);
    if (question === undefined) return;
    this.open.delete(id);
    this.emit("settled", { question, outcome });
    this.emit("changed");
  }
}
