// Asks the server every two seconds how it is doing, while the page is looked at.

import { Emitter } from "/js/core/emitter.js";

const EVERY_MS = 2000;
/** Values of each figure: five minutes of them. */
export const KEPT = 150;

/** Events: "changed". */
export class Diagnostics extends Emitter {
  /** The newest answer of `server/diagnostics`; null before one came. */
  newest = null;
  /** Why there is none; "" if there is. */
  problem = "";
  #series = new Map();
  #timer = null;

  constructor(connection) {
    super();
    this.connection = connection;
    connection.on("ready", () => this.#ask());
    connection.on("status", () => {
      if (!connection.isReady) clearTimeout(this.#timer);
    });
  }

  /** The last values of a figure, oldest first. */
  series(name) {
    return this.#series.get(name) ?? [];
  }

  async #ask() {
    clearTimeout(this.#timer);
    if (!this.connection.isReady) return;
    if (!document.hidden) await this.#once();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(), EVERY_MS);
  }

  async #once() {
    const began = performance.now();
    try {
      this.newest = await this.connection.call("server/diagnostics", {}, { quiet: true });
      this.problem = "";
    } catch (error) {
      this.problem = error.message;
      this.emit("changed");
      return;
    }
    this.#keep("round trip", performance.now() - began);
    const memory = this.newest.process.residentMemoryBytes;
    if (memory !== null) this.#keep("memory", memory);
    for (const { name, value } of this.newest.gauges) this.#keep(name, value);
    this.emit("changed");
  }

  #keep(name, value) {
    const values = this.#series.get(name) ?? [];
    values.push(value);
    if (values.length > KEPT) values.shift();
    this.#series.set(name, values);
  }
}
