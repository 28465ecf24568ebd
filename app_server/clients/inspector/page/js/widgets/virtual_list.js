// A list of rows of one height of which only those in sight are elements, so that its cost does not
// grow with its length. Keyboard and screen readers see a listbox with one selected option.

import { h, onFrame } from "/js/core/dom.js";

const ROW_HEIGHT = 28;
const SPARE_ROWS = 8;
const AT_END_PX = 4;
let lists = 0;

export class VirtualList {
  #rows = [];
  #pool = new Map();
  #spare = [];
  #selected = -1;
  #id = `list-${++lists}`;

  /**
   * `create()` makes the element of a row, `draw(element, row)` fills it; `onselect(row, index)` is
   * called when the selection moves. `label` names the list for screen readers.
   */
  constructor({ label, create, draw, onselect }) {
    this.create = create;
    this.draw = draw;
    this.onselect = onselect;
    this.all = h(".all", { role: "presentation" });
    this.element = h(".timeline", { tabindex: 0, role: "listbox", "aria-label": label }, this.all);
    /** Whether the end is kept in sight while rows are added. */
    this.follows = true;
    /** @type {(follows: boolean) => void} */
    this.onfollow = () => {};
    this.refresh = onFrame(() => this.#refresh());
    this.element.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.#press(event));
    this.element.addEventListener("click", (event) => this.#click(event));
    this.sizes = new ResizeObserver(() => this.refresh());
    this.sizes.observe(this.element);
  }

  /** Show these rows: an array that may grow; call `refresh` when it did. */
  show(rows, selected = -1) {
    this.#rows = rows;
    this.#selected = selected;
    for (const index of [...this.#pool.keys()]) this.#recycle(index);
    this.refresh();
  }

  get selected() {
    return this.#selected;
  }

  /** Select a row and bring it into sight. */
  select(index) {
    if (this.#rows.length === 0) return;
    this.#selected = Math.max(0, Math.min(this.#rows.length - 1, index));
    const top = this.#selected * ROW_HEIGHT;
    const height = this.element.clientHeight;
    if (top < this.element.scrollTop) this.element.scrollTop = top;
    else if (top + ROW_HEIGHT > this.element.scrollTop + height) {
      this.element.scrollTop = top + ROW_HEIGHT - height;
    }
    this.#refresh();
    this.onselect(this.#rows[this.#selected], this.#selected);
  }

  /** Keep the end in sight from now on, or not. */
  follow(follows) {
    this.follows = follows;
    this.onfollow(follows);
    this.refresh();
  }

  /** Stop watching the page; the list is not used any more. */
  close() {
    this.sizes.disconnect();
  }

  #refresh() {
    const height = this.element.clientHeight;
    const total = this.#rows.length * ROW_HEIGHT;
    this.all.style.height = `${total}px`;
    if (this.follows) this.element.scrollTop = total - height;
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW_HEIGHT) - SPARE_ROWS);
    const last = Math.min(
      this.#rows.length,
      Math.ceil((this.element.scrollTop + height) / ROW_HEIGHT) + SPARE_ROWS,
    );
    for (const index of [...this.#pool.keys()]) {
      if (index < first || index >= last) this.#recycle(index);
    }
    for (let index = first; index < last; index++) this.#place(index);
    if (this.#selected >= 0) {
      this.element.setAttribute("aria-activedescendant", `${this.#id}-${this.#selected}`);
    } else this.element.removeAttribute("aria-activedescendant");
  }

  #place(index) {
    let element = this.#pool.get(index);
    if (element === undefined) {
      element = this.#spare.pop() ?? this.all.appendChild(this.create());
      this.#pool.set(index, element);
      element.hidden = false;
      element.index = index;
      element.id = `${this.#id}-${index}`;
      element.style.transform = `translateY(${index * ROW_HEIGHT}px)`;
    }
    const row = this.#rows[index];
    if (element.row !== row || element.revision !== row.revision) {
      this.draw(element, row);
      element.row = row;
      element.revision = row.revision;
    }
    element.setAttribute("aria-selected", index === this.#selected);
    element.setAttribute("aria-setsize", this.#rows.length);
    element.setAttribute("aria-posinset", index + 1);
  }

  #recycle(index) {
    const element = this.#pool.get(index);
    this.#pool.delete(index);
    element.hidden = true;
    element.row = undefined;
    this.#spare.push(element);
  }

  #scrolled() {
    const { scrollTop, clientHeight, scrollHeight } = this.element;
    const atEnd = scrollTop + clientHeight >= scrollHeight - AT_END_PX;
    // Rows that were added since the last frame are no scrolling of the user's.
    if (atEnd !== this.follows && this.all.style.height === `${this.#rows.length * ROW_HEIGHT}px`) {
      this.follows = atEnd;
      this.onfollow(atEnd);
    }
    this.refresh();
  }

  #press(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / ROW_HEIGHT) - 1);
    const steps = {
      ArrowDown: 1,
      j: 1,
      ArrowUp: -1,
      k: -1,
      PageDown: page,
      PageUp: -page,
      Home: -Infinity,
      End: Infinity,
    };
    const step = steps[event.key];
    if (step === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    if (step < 0 && this.follows) this.follow(false);
    const from = this.#selected < 0 && step < 0 ? this.#rows.length : this.#selected;
    this.select(from + step);
  }

  #click(event) {
    const element = event.target.closest('[role="option"]');
    if (element !== null) this.select(element.index);
  }
}
