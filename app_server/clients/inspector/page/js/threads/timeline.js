// A live list of messages, with a filter and what follows the end of it; for a thread or for all.

import { h } from "/js/core/dom.js";
import { createRow, drawRow } from "/js/threads/message_row.js";
import { Rows } from "/js/threads/rows.js";
import { VirtualList } from "/js/widgets/virtual_list.js";

export class Timeline {
  #messages = 0;

  /**
   * `entries()` gives all messages so far; `concerns(entry)` says whether a new one belongs here;
   * `onselect(row)` is called when one is selected, `onchange(row)` when the selected one grew.
   *
   * @param {{log: import("/js/core/wire_log.js").WireLog, entries: () => any[], concerns: (entry: any) => boolean,
   *   label: string, onselect: (row: any) => void, onchange?: (row: any) => void}} options
   */
  constructor({ log, entries, concerns, label, onselect, onchange = () => {} }) {
    this.entries = entries;
    this.rows = new Rows();
    this.list = new VirtualList({ label, create: createRow, draw: drawRow, onselect });
    this.onchange = onchange;
    this.filter = h("input", {
      type: "search",
      placeholder: "Filter messages",
      "aria-label": "Filter messages",
      dataset: { filter: "" },
    });
    this.fold = toggle("Fold deltas", "One row for all deltas of one text", () => {
      this.fold.setAttribute("aria-pressed", !this.#folds);
      this.rebuild();
    });
    this.follow = toggle("Follow", "Keep the newest message in sight", () =>
      this.list.follow(!this.list.follows),
    );
    this.count = h("span");
    this.foot = h(".timeline-foot", null, this.count);
    this.filter.addEventListener("input", () => this.rebuild());
    this.list.onfollow = (follows) => this.follow.setAttribute("aria-pressed", follows);
    this.off = [
      log.on("entry", (entry) => concerns(entry) && this.#add(entry)),
      log.on("dropped", () => this.rebuild()),
    ];
    this.rebuild();
  }

  /** Show these turns before the first message. */
  setHistory(turns) {
    this.rows.setHistory(turns);
    this.rebuild();
  }

  /** Make all rows anew, with the settings as they are now. */
  rebuild() {
    this.rows.filter = this.filter.value.trim();
    this.rows.folds = this.#folds;
    const entries = this.entries();
    this.#messages = entries.length;
    this.list.show(this.rows.rebuild(entries));
    this.#count();
  }

  /** The row that is selected; null if none is. */
  get selected() {
    return this.rows.all[this.list.selected] ?? null;
  }

  close() {
    for (const off of this.off) off();
    this.list.close();
  }

  get #folds() {
    return this.fold.getAttribute("aria-pressed") === "true";
  }

  #add(entry) {
    this.#messages += 1;
    if (!this.rows.add(entry)) return;
    this.list.refresh();
    this.#count();
    const changed = this.rows.all.at(-1);
    if (changed.count > 1 && changed === this.selected) this.onchange(changed);
  }

  #count() {
    this.count.textContent = `${this.#messages} messages · ${this.rows.all.length} rows`;
  }
}

function toggle(label, title, onclick) {
  return h("button.plain", { type: "button", "aria-pressed": true, title, onclick }, label);
}
