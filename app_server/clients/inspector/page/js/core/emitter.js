// Calls listeners by the name of an event. A listener that throws does not keep the others from it.

export class Emitter {
  #listeners = new Map();

  /** Listen to an event; returns a function that ends it. */
  on(name, listener) {
    const listeners = this.#listeners.get(name) ?? new Set();
    this.#listeners.set(name, listeners.add(listener));
    return () => listeners.delete(listener);
  }

  emit(name, value) {
    for (const listener of [...(this.#listeners.get(name) ?? [])]) {
      try {
        listener(value);
      } catch (error) {
        // Reported like any other error of a script; the page goes on.
        reportError(error);
      }
    }
  }
}
