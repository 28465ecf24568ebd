// How long the server's answers took, as this page sees them: the last ones of each method.

import { Emitter } from "/js/core/emitter.js";

export const KEPT = 500;
export const MAX_METHODS = 200;

/** Events: "added" with {method, ms}. */
export class Timings extends Emitter {
  #samples = new Map();

  add(method, ms) {
    const samples = this.#samples.get(method) ?? [];
    if (!this.#samples.has(method) && this.#samples.size >= MAX_METHODS) return;
    samples.push(ms);
    if (samples.length > KEPT) samples.shift();
    this.#samples.set(method, samples);
    this.emit("added", { method, ms });
  }

  /** Figures of each method, by name: {method, count, p50, p99, max}, in milliseconds. */
  figures() {
    return [...this.#samples.keys()].sort().map((method) => {
      const sorted = [...this.#samples.get(method)].sort((a, b) => a - b);
      const at = (part) => sorted[Math.min(sorted.length - 1, Math.floor(part * sorted.length))];
      return { method, count: sorted.length, p50: at(0.5), p99: at(0.99), max: sorted.at(-1) };
    });
  }
}
