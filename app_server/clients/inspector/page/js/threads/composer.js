// What the user says to a thread: begins a turn, or adds to the one that runs.

import { h } from "/js/core/dom.js";

export class Composer {
  constructor(app, threadId) {
    this.text = h("textarea", {
      rows: 2,
      "aria-label": "Message",
      placeholder: "Message to the thread – Ctrl+Enter sends it",
      dataset: { composer: "" },
    });
    this.send = h("button.primary", { type: "submit" }, "Send");
    this.stop = h("button.danger", { type: "button" }, "Interrupt");
    this.hint = h("span.muted.grow");
    this.element = h(
      "form.composer",
      null,
      this.text,
      h(".actions", null, this.hint, this.stop, this.send),
    );
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit(app, threadId);
    });
    this.text.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) this.element.requestSubmit();
    });
    this.stop.addEventListener("click", () =>
      app.toasts.watch(app.threads.interrupt(threadId), "The turn could not be interrupted"),
    );
    this.draw(false);
  }

  /** Offer what is possible while a turn runs, or while none does. */
  draw(isRunning) {
    this.stop.hidden = !isRunning;
    this.send.textContent = isRunning ? "Add to the turn" : "Send";
    this.hint.textContent = isRunning ? "A turn is running." : "";
  }

  async #submit(app, threadId) {
    const text = this.text.value;
    if (text.trim() === "") return;
    this.send.disabled = true;
    const answer = await app.toasts.watch(
      app.threads.send(threadId, text),
      "The message was not taken",
    );
    this.send.disabled = false;
    if (answer !== undefined) this.text.value = "";
  }
}
