// Light, dark, or as the system has it.

import { h } from "/js/core/dom.js";

const KEY = "app-server-inspector.theme";
const NAMES = { "": "System theme", light: "Light theme", dark: "Dark theme" };

/** Use the theme that was chosen last. */
export function applyTheme() {
  document.documentElement.style.colorScheme = localStorage.getItem(KEY) ?? "";
}

/** A button that goes to the next theme. */
export function themeButton() {
  const names = Object.keys(NAMES);
  const button = h("button.plain", { type: "button" });
  const draw = () => (button.textContent = NAMES[localStorage.getItem(KEY) ?? ""]);
  button.addEventListener("click", () => {
    const next = names[(names.indexOf(localStorage.getItem(KEY) ?? "") + 1) % names.length];
    localStorage.setItem(KEY, next);
    applyTheme();
    draw();
  });
  draw();
  return button;
}
