// The entries of a transcript below each other. Each is an empty frame until it comes near to what is in sight, so that
// thousands cost little; one that is in sight again keeps what was opened in it.

import { h, keyed, onFrame } from "/js/core/dom.js";
import { html, render } from "/js/core/html.js";
import { Entry, isRunning, labelOf } from "/js/transcript/entry.js";
import { textOf } from "/js/transcript/items.js";

const NEAR = "800px 0px";
const AT_END_PX = 24;
/** Entries at the end that are filled at once. */
const FIRST = 24;

export class TranscriptList {
  #near = new Set();
  #changed = new Set();
  #last = 0;

  /** `onfollow(follows)` is called when the end is kept in sight from now on, or is not. */
  constructor(app, threadId, transcript, onfollow) {
    this.app = app;
    this.threadId = threadId;
    this.onfollow = onfollow;
    this.follows = true;
    this.inside = h(".entries");
    this.element = h(
      ".transcript",
      { tabindex: 0, role: "feed", "aria-label": "Transcript" },
      this.inside,
    );
    this.near = new IntersectionObserver((seen) => this.#seen(seen), {
      root: this.element,
      rootMargin: NEAR,
    });
    this.sizes = new ResizeObserver(() => this.#keepEnd());
    this.sizes.observe(this.inside);
    this.sizes.observe(this.element);
    this.element.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.#press(event));
    this.drawChanged = onFrame(() => this.#drawChanged());
    this.seconds = setInterval(() => this.#tick(), 1000);
    this.show(transcript);
  }

  /** Show a transcript, from its end. */
  show(transcript) {
    this.transcript = transcript;
    this.off?.forEach((end) => end());
    this.off = [
      transcript.on("entry", (entry) => this.#add(entry)),
      transcript.on("changed", (entry) => this.#change(entry)),
      transcript.on("reset", () => this.reset()),
    ];
    this.reset();
  }

  /** Make the frames those of the transcript, with what is in sight where it was. */
  reset() {
    const { scrollHeight, scrollTop } = this.element;
    const entries = this.transcript.entries;
    keyed(
      this.inside,
      entries,
      ({ key }) => key,
      (entry) => this.#frame(entry),
      (frame, entry) => (frame.entry = entry),
    );
    for (const entry of entries.slice(-FIRST)) this.#draw(this.#frameOf(entry));
    if (this.follows) this.#keepEnd();
    // What was put before it moves what is in sight.
    else if (scrollTop < 1) this.element.scrollTop = this.element.scrollHeight - scrollHeight;
  }

  /** Keep the end in sight from now on. */
  follow() {
    this.#follow(true);
    this.#keepEnd();
  }

  /** Bring an entry into sight and mark it; returns whether it is there. */
  reveal(key) {
    const entry = this.transcript.entry(key);
    if (entry === undefined) return false;
    const frame = this.#frameOf(entry);
    this.#follow(false);
    this.#draw(frame);
    frame.scrollIntoView({ block: "start" });
    frame.focus({ preventScroll: true });
    for (const marked of this.inside.querySelectorAll(".marked")) marked.classList.remove("marked");
    frame.classList.add("marked");
    return true;
  }

  close() {
    clearInterval(this.seconds);
    this.off.forEach((end) => end());
    this.near.disconnect();
    this.sizes.disconnect();
  }

  #frame(entry) {
    const frame = h(`article.entry.of-${entry.type}`, {
      tabindex: -1,
      "aria-label": labelOf(entry),
    });
    frame.entry = entry;
    this.near.observe(frame);
    return frame;
  }

  #frameOf({ key }) {
    return this.inside.keyedChildren.get(key);
  }

  #add(entry) {
    const frame = this.#frame(entry);
    this.inside.append(frame);
    this.inside.keyedChildren.set(entry.key, frame);
    this.#change(entry);
  }

  #change(entry) {
    this.#changed.add(entry);
    this.drawChanged();
  }

  #drawChanged() {
    const newest = this.transcript.turns.at(-1);
    for (const entry of this.#changed) {
      const frame = this.#frameOf(entry);
      // What was never in sight is filled when it comes there.
      if (frame?.isFilled || (this.follows && entry.turn === newest)) this.#draw(frame);
    }
    this.#changed.clear();
    if (this.follows) this.#keepEnd();
  }

  #draw(frame) {
    if (frame === undefined) return;
    frame.isFilled = true;
    const { entry } = frame;
    const actions = {
      copy: (event) => this.#copy(event, textOf(entry)),
      link: (event) => this.#copy(event, this.#address(entry)),
      go: (key) => this.reveal(key),
    };
    render(html`<${Entry} entry=${entry} app=${this.app} actions=${actions} />`, frame);
  }

  async #copy({ currentTarget: button }, text) {
    const label = button.textContent;
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = label), 1500);
  }

  #address({ key }) {
    return `${location.origin}/#/threads/${this.threadId}/at/${encodeURIComponent(key)}`;
  }

  #seen(seen) {
    for (const { target, isIntersecting } of seen) {
      if (isIntersecting) this.#near.add(target);
      else this.#near.delete(target);
      if (isIntersecting && !target.isFilled) this.#draw(target);
    }
  }

  // Times that pass are those of what runs, and is in sight.
  #tick() {
    for (const frame of this.#near) {
      if (isRunning(frame.entry)) this.#draw(frame);
    }
  }

  #keepEnd() {
    if (!this.follows) return;
    this.element.scrollTop = this.element.scrollHeight;
    this.#last = this.element.scrollTop;
  }

  #scrolled() {
    const { scrollTop, clientHeight, scrollHeight } = this.element;
    const atEnd = scrollTop + clientHeight >= scrollHeight - AT_END_PX;
    // Content that grew since the last frame is no scrolling of the user's.
    if (atEnd) this.#follow(true);
    else if (scrollTop < this.#last - 1) this.#follow(false);
    this.#last = scrollTop;
  }

  #follow(follows) {
    if (this.follows === follows) return;
    this.follows = follows;
    this.onfollow(follows);
  }

  #press(event) {
    const at = event.target.closest("article");
    const isList = event.target === this.element || event.target === at;
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
    const edge = { Home: "firstElementChild", End: "lastElementChild" }[event.key];
    if (!isList || (step === undefined && edge === undefined)) return;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    const next = edge
      ? this.inside[edge]
      : at === null
        ? this.inside.lastElementChild
        : step > 0
          ? at.nextElementSibling
          : at.previousElementSibling;
    if (!(next instanceof HTMLElement)) return;
    if (step < 0 || edge === "firstElementChild") this.#follow(false);
    this.#draw(next);
    next.focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
    if (next === this.inside.lastElementChild) this.follow();
  }
}
