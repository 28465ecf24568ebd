// Short messages in the corner: failures until they are closed, the rest for a while.

import { h } from "/js/core/dom.js";
import { oneLine } from "/js/core/format.js";

const SHOWN_MS = 4000;
const MAX_SHOWN = 4;
const MAX_CHARACTERS = 300;

export class Toasts {
  element = h(".toasts", { role: "status", "aria-live": "polite", "aria-label": "Notices" });

  /** Say that something failed. */
  fail(text) {
    this.#show(text, "bad");
  }

  /** Say that something was done. */
  say(text) {
    const toast = this.#show(text, "good");
    setTimeout(() => toast.remove(), SHOWN_MS);
  }

  /** Wait for a promise, and show the error if it is rejected; resolves to undefined then. */
  async watch(promise, what) {
    try {
      return await promise;
    } catch (error) {
      this.fail(`${what}: ${error.message}`);
      return undefined;
    }
  }

  #show(text, kind) {
    const close = h("button.plain", { type: "button", "aria-label": "Close" }, "×");
    const toast = h(
      `.toast.${kind}`,
      null,
      h("span", { title: text }, oneLine(text, MAX_CHARACTERS)),
      close,
    );
    close.addEventListener("click", () => toast.remove());
    while (this.element.childElementCount >= MAX_SHOWN) this.element.firstChild.remove();
    this.element.append(toast);
    return toast;
  }
}
