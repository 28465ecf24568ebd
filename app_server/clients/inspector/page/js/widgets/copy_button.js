// A button that puts a text on the clipboard, and says that it did.

import { h } from "/js/core/dom.js";

const SAID_MS = 1500;

export function copyButton(label, text) {
  const button = h("button.plain", { type: "button" }, label);
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text());
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = label), SAID_MS);
  });
  return button;
}
