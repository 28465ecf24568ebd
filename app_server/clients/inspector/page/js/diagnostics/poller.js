// Asks the server every two seconds how it is doing, and less often while the page is not looked at.

import { Emitter } from "/js/core/emitter.js";
import { Series } from "/js/diagnostics/series.js";

const EVERY_MS = 2000;
const HIDDEN_MS = 60_000;

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
    document.addEventListener("visibilitychange", () => !document.hidden && this.#ask());
    connection.on("status", () => {
      if (!connection.isReady) clearTimeout(this.#timer);
    });
  }

  /** The values of a figure, a `Series`; undefined if the server has not told it. */
  series(name) {
    return this.#series.get(name);
  }

  async #ask() {
    clearTimeout(this.#timer);
    if (!this.connection.isReady) return;
    await this.#once();
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(), document.hidden ? HIDDEN_MS : EVERY_MS);
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
    const series = this.#series.get(name) ?? new Series();
    series.add(Date.now(), value);
    this.#series.set(name, series);
  }
}
