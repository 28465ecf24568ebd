// Threads that wait for a person, whether this page has opened them or not: it listens to each, so that it is asked what
// they ask.

import { Emitter } from "/js/core/emitter.js";

/** Threads that are listened to because they wait; others are named, and can be opened. */
export const MAX_LISTENED = 32;
/** Threads in memory that are looked at when the page connects. */
export const MAX_READ = 1000;
const READ_AT_ONCE = 8;

/** Events: "changed". */
export class WaitingThreads extends Emitter {
  /** Thread id to the reason for which its questions do not come here. */
  refused = new Map();
  #asked = new Set();
  #works = false;

  constructor(connection, threads) {
    super();
    this.connection = connection;
    this.threads = threads;
    connection.on("ready", () => this.#begin());
    threads.on("changed", () => this.#listen());
  }

  /** Threads that wait, and whose questions this page does not have. */
  get elsewhere() {
    return [...this.threads.threads.values()].filter(
      (thread) => waits(thread) && !this.threads.open.has(thread.id) && !this.#asked.has(thread.id),
    );
  }

  async #begin() {
    this.refused.clear();
    this.#asked.clear();
    try {
      const { data } = await this.connection.call("thread/loaded/list", {}, { quiet: true });
      const unknown = data.filter((id) => !this.threads.threads.has(id)).slice(0, MAX_READ);
      for (let first = 0; first < unknown.length; first += READ_AT_ONCE) {
        await Promise.all(unknown.slice(first, first + READ_AT_ONCE).map((id) => this.#read(id)));
      }
    } catch {
      // A server without this list says what waits as it happens, and in the list of threads.
    }
    this.#listen();
  }

  async #read(threadId) {
    const { thread } = await this.connection.call("thread/read", { threadId }, { quiet: true });
    if (waits(thread)) this.threads.putFirst(thread);
  }

  async #listen() {
    if (this.#works || !this.connection.isReady) return;
    this.#works = true;
    const [next] = this.elsewhere.filter(({ id }) => !this.refused.has(id));
    const listened = [...this.threads.open.keys()].filter((id) =>
      waits(this.threads.threads.get(id)),
    );
    if (next !== undefined && listened.length < MAX_LISTENED) {
      this.#asked.add(next.id);
      try {
        await this.threads.listen(next.id);
      } catch (error) {
        this.refused.set(next.id, error.message);
      }
      this.#asked.delete(next.id);
    }
    this.#works = false;
    this.emit("changed");
    if (next !== undefined && listened.length < MAX_LISTENED) this.#listen();
  }
}

/** Whether a thread's turn waits for a person. */
export function waits(thread) {
  return thread?.status?.activeFlags?.length > 0;
}
