// Every message that this page sent and received, oldest first, up to a bound; and those of each
// thread. What is above the bound is dropped from the old end, a tenth of the log at a time.

import { Emitter } from "/js/core/emitter.js";
import { itemOf, kindOf, threadOf } from "/js/core/envelope.js";

export const MAX_ENTRIES = 50_000;
export const MAX_CHARACTERS = 64 * 1024 * 1024;

/** Events: "entry" with the new entry, "dropped" when old ones have gone. */
export class WireLog extends Emitter {
  entries = [];
  #threads = new Map();
  #asked = new Map();
  #next = 1;
  #characters = 0;

  constructor({ maxEntries = MAX_ENTRIES, maxCharacters = MAX_CHARACTERS } = {}) {
    super();
    this.maxEntries = maxEntries;
    this.maxCharacters = maxCharacters;
  }

  /** Note a message; `quiet` ones are the page's own polling. Returns the entry. */
  add(direction, message, size, quiet = false) {
    const kind = kindOf(message);
    const entry = {
      seq: this.#next++,
      at: Date.now(),
      direction,
      kind,
      method: message.method ?? "",
      threadId: threadOf(message),
      itemId: itemOf(message),
      size,
      quiet,
      durationMs: null,
      message,
    };
    this.#join(entry);
    this.entries.push(entry);
    if (entry.threadId !== null) this.#file(entry);
    this.#characters += size;
    this.#trim();
    this.emit("entry", entry);
    return entry;
  }

  /** The messages about a thread, from the one with the number `since` on. */
  ofThread(threadId, since = 0) {
    return (this.#threads.get(threadId) ?? []).filter(({ seq }) => seq >= since);
  }

  /** The number that the next message gets. */
  get next() {
    return this.#next;
  }

  /** Forget everything. */
  clear() {
    this.entries = [];
    this.#threads.clear();
    this.#characters = 0;
    this.emit("dropped");
  }

  #file(entry) {
    const filed = this.#threads.get(entry.threadId);
    if (filed === undefined) this.#threads.set(entry.threadId, [entry]);
    else filed.push(entry);
  }

  // An answer has no method and often no thread: both are those of its request.
  #join(entry) {
    if (entry.message.id === undefined) return;
    const answered = entry.direction === "in" ? "out" : "in";
    if (entry.kind === "request") {
      this.#asked.set(`${entry.direction} ${entry.message.id}`, entry);
      return;
    }
    const key = `${answered} ${entry.message.id}`;
    const request = this.#asked.get(key);
    if (request === undefined) return;
    this.#asked.delete(key);
    entry.method = request.method;
    entry.threadId = request.threadId ?? entry.threadId;
    entry.quiet = request.quiet;
    entry.durationMs = entry.at - request.at;
  }

  /** A new connection: requests of the old one are not answered any more. */
  forgetRequests() {
    this.#asked.clear();
  }

  #trim() {
    if (this.entries.length <= this.maxEntries && this.#characters <= this.maxCharacters) return;
    const target = { entries: this.maxEntries * 0.9, characters: this.maxCharacters * 0.9 };
    let count = 0;
    while (
      count < this.entries.length - 1 &&
      (this.entries.length - count > target.entries || this.#characters > target.characters)
    ) {
      this.#characters -= this.entries[count].size;
      count += 1;
    }
    this.entries = this.entries.slice(count);
    const first = this.entries[0].seq;
    for (const [id, entries] of this.#threads) {
      const kept = entries.filter((entry) => entry.seq >= first);
      if (kept.length === 0) this.#threads.delete(id);
      else this.#threads.set(id, kept);
    }
    this.emit("dropped");
  }
}
