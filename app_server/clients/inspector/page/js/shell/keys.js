// Keys that work everywhere on the page. They can be switched off (WCAG 2.2, 2.1.4), and none of
// them answers a question of the server.

import { h } from "/js/core/dom.js";
import { openDialog } from "/js/widgets/dialog.js";

const KEY = "app-server-inspector.keys";

const ACTIONS = [
  ["/", "Go to the filter", () => focusOn("[data-filter]")],
  ["n", "Start a thread", () => pressOn("[data-new-thread]")],
  ["c", "Write to the thread", () => focusOn("[data-composer]")],
  ["m", "Go to the messages", () => focusOn('[role="listbox"], [role="feed"]')],
];

const ELSEWHERE = [
  ["Ctrl+Enter", "Send the message that is written"],
  ["↑ ↓ or j k", "In a list, a transcript, messages: the one before, the next one"],
  ["Home End", "There: the first one, the last one"],
  ["Esc", "Leave a field, close a dialog"],
];

/** Listen to keys; `views` are [{name, title, key}]. Returns a function that shows all keys. */
export function listenToKeys(views, go) {
  const all = [
    ...views.map(({ name, title, key }) => [key, title, () => go(`#/${name}`)]),
    ...ACTIONS,
    ["o", "Go to the oldest question", () => go("#/requests/oldest")],
    ["?", "Show this list", () => showKeys(all)],
  ];
  document.addEventListener("keydown", (event) => {
    const place = event.target;
    if (event.key === "Escape" && place instanceof HTMLElement && isField(place)) place.blur();
    const hasModifier = event.ctrlKey || event.metaKey || event.altKey;
    if (hasModifier || isField(event.target) || document.querySelector("dialog[open]") || !areOn())
      return;
    const action = all.find(([key]) => key === event.key);
    if (action === undefined) return;
    event.preventDefault();
    action[2]();
  });
  return () => showKeys(all);
}

function showKeys(all) {
  const on = h("input", { type: "checkbox", checked: areOn() });
  on.addEventListener("change", () => localStorage.setItem(KEY, on.checked ? "on" : "off"));
  const rows = [...all, ...ELSEWHERE].map(([key, text]) => [
    h("dt", null, h("kbd", null, key)),
    h("dd", null, text),
  ]);
  openDialog({
    title: "Keys",
    content: h(
      ".stack",
      null,
      h("dl.facts", null, rows),
      h("label.check", null, on, "Keys without Ctrl are on"),
    ),
  });
}

function areOn() {
  return localStorage.getItem(KEY) !== "off";
}

function focusOn(selector) {
  const element = document.querySelector(selector);
  if (element instanceof HTMLElement) element.focus();
}

function pressOn(selector) {
  const element = document.querySelector(selector);
  if (element instanceof HTMLElement) element.click();
}

function isField(element) {
  return (
    element.matches?.('input:not([type="checkbox"], [type="radio"]), textarea, select') ?? false
  );
}
