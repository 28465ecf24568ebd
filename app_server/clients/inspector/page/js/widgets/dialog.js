// A form in a dialog that covers the page. Escape closes it, and focus goes back to where it was.

import { h } from "/js/core/dom.js";

/**
 * Show a dialog; `onsubmit` gets its button pressed or Enter, and closes it unless it returns false.
 * Without `submit`, a label, it has a button to close it alone.
 *
 * @param {{title: string, content: Node, submit?: string | null,
 *   onsubmit?: () => boolean | Promise<boolean>}} options
 */
export function openDialog({ title, content, submit = null, onsubmit = () => true }) {
  const cancel = h("button", { type: "button" }, submit === null ? "Close" : "Cancel");
  const go = submit === null ? null : h("button.primary", { type: "submit" }, submit);
  const form = h("form", { method: "dialog" }, content, h(".actions", null, cancel, go));
  const heading = h("h2", { id: "dialog-title" }, title);
  const dialog = h("dialog", { "aria-labelledby": "dialog-title" }, heading, form);
  cancel.addEventListener("click", () => dialog.close());
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    if ((await onsubmit()) !== false) dialog.close();
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}
