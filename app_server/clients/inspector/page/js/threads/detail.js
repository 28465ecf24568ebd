// A selected message in full: what it says, then its JSON.

import { fill, h, onFrame } from "/js/core/dom.js";
import { element, html } from "/js/core/html.js";
import { bytes, clock, duration } from "/js/core/format.js";
import { Patch } from "/js/transcript/patch.js";
import { itemOutput, itemText } from "/js/threads/summary.js";
import { copyButton } from "/js/widgets/copy_button.js";
import { emptyState } from "/js/widgets/empty.js";
import { jsonTree } from "/js/widgets/json_tree.js";

const NOTHING = () =>
  emptyState(
    "No message selected",
    "Select a message to read it whole: click it, or use ↑ and ↓ in the list.",
  );

export class Detail {
  element = h("section.pane.detail", { "aria-label": "Selected message", tabindex: -1 });
  #shown = null;
  #again = onFrame(() => this.show(this.#shown));

  constructor() {
    this.show(null);
  }

  /** Show a row, or nothing. */
  show(row) {
    this.#shown = row;
    this.element.classList.toggle("nothing", row === null);
    if (row === null) fill(this.element, NOTHING());
    else {
      const close = h("button.plain.back", { type: "button" }, "Close");
      close.addEventListener("click", () => this.#close());
      fill(
        this.element,
        ...(row.kind === "item" ? itemParts(row, close) : messageParts(row, close)),
      );
    }
  }

  // Where the screen is narrow a message is shown in the place of the list it was selected in.
  #close() {
    this.show(null);
    this.element.parentElement.querySelector("[role=listbox]").focus();
  }

  /** Show the row again, which grew; many times a second while a text is streamed. */
  refresh(row) {
    if (this.#shown === row) this.#again();
  }
}

function itemParts({ item, turn }, close) {
  return [
    h(
      ".detail-head",
      null,
      h(".row", null, h("h2", null, h("code", null, item.type)), close),
      h("span.muted", null, `before this page, turn ${turn.id}`),
    ),
    h(".scroll.pad.stack", null, readable(item), section("JSON", item)),
  ];
}

function messageParts({ entry, count, text, size }, close) {
  const facts = [
    entry.direction === "out" ? "sent" : "received",
    clock(entry.at),
    bytes(size),
    count > 1 ? `${count} messages` : null,
    entry.durationMs === null ? null : `answered in ${duration(entry.durationMs)}`,
  ];
  const item = entry.message.params?.item;
  return [
    h(
      ".detail-head",
      null,
      h(".row", null, h("h2", null, h("code", null, entry.method || "answer")), close),
      h("span.muted", null, facts.filter(Boolean).join(" · ")),
    ),
    h(
      ".scroll.pad.stack",
      { tabindex: 0 },
      entry.message.error && h("p.prose", null, entry.message.error.message),
      text !== "" && h("p.prose", null, text),
      item && readable(item),
      section(count > 1 ? "JSON of the first one" : "JSON", entry.message),
    ),
  ];
}

function section(title, value) {
  const copy = copyButton("Copy", () => JSON.stringify(value, null, 2));
  return h(
    ".stack.tight",
    null,
    h(".row", null, h("h2.heading.grow", null, title), copy),
    jsonTree(value),
  );
}

function readable(item) {
  const text = itemText(item);
  const output = itemOutput(item);
  return h(
    ".stack.tight",
    null,
    text !== "" && h(item.type === "commandExecution" ? "pre" : "p.prose", null, text),
    output !== "" && h("pre", { tabindex: 0, "aria-label": "Output" }, output),
    (item.changes ?? []).map((change) => element(html`<${Patch} change=${change} />`)),
  );
}
