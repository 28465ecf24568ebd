// One thread: its facts, its conversation or the messages of the wire, its open questions, and what the user says to it.

import { fill, h, keyed } from "/js/core/dom.js";
import { html, render } from "/js/core/html.js";
import { questionCard } from "/js/requests/question_card.js";
import { Composer } from "/js/threads/composer.js";
import { threadStatus, titleOf } from "/js/threads/thread_list.js";
import { ThreadUsage } from "/js/threads/thread_usage.js";
import { Timeline } from "/js/threads/timeline.js";
import { MAX_ENTRIES } from "/js/transcript/transcript.js";
import { TranscriptList } from "/js/transcript/transcript_list.js";
import { copyButton } from "/js/widgets/copy_button.js";

const TABS = { "": "Transcript", usage: "Usage", wire: "Wire log" };
/** Pages of earlier turns that are read to find an entry that a link names. */
const MAX_SEARCHED_PAGES = 50;

export class ThreadPane {
  /** `detail` shows the message that is selected. Call `move` when the pane is on the page. */
  constructor(app, threadId, detail) {
    this.app = app;
    this.threadId = threadId;
    this.detail = detail;
    this.head = h("header.thread-head");
    this.questions = h(".thread-questions", { role: "group", "aria-label": "Open questions" });
    this.tabs = new Map(Object.keys(TABS).map((name) => [name, this.#tab(name)]));
    this.shown = "";
    this.usage = h(".scroll.pad");
    this.place = h(".tab-panel", { role: "tabpanel" });
    this.composer = new Composer(app, threadId);
    this.earlier = h("button.plain", { type: "button", hidden: true }, "Earlier turns");
    this.earlier.addEventListener("click", () => this.#readEarlier());
    this.newest = h("button.plain", { type: "button", hidden: true }, "Go to the newest");
    this.newest.addEventListener("click", () => this.list.follow());
    this.list = new TranscriptList(
      app,
      threadId,
      app.threads.open.get(threadId).transcript,
      (follows) => (this.newest.hidden = follows),
    );
    this.element = h(
      "section.pane",
      { "aria-label": "Thread" },
      this.head,
      h(".tabs", { role: "tablist", "aria-label": "Views of the thread" }, ...this.tabs.values()),
      this.place,
      this.questions,
      this.composer.element,
    );
    /** @type {Timeline | null} */
    this.timeline = null;
    this.off = app.threads.on("opened", (id) => id === threadId && this.#opened());
    this.draw();
  }

  /** Show a tab: "", "usage", "wire", or "at" with the key of an entry. */
  move([tab = "", key]) {
    const name = tab in TABS ? tab : "";
    this.shown = name;
    for (const [other, button] of this.tabs) {
      button.setAttribute("aria-selected", other === name);
      button.tabIndex = other === name ? 0 : -1;
    }
    this.place.setAttribute("aria-label", TABS[name]);
    if (name === "wire") this.#showWire();
    else if (name === "usage") this.#showUsage();
    else this.#showTranscript();
    if (tab === "at") this.#reveal(key);
  }

  draw() {
    const { threads, questions } = this.app;
    const known = threads.open.get(this.threadId);
    const thread = threads.threads.get(this.threadId) ?? known?.settings.thread;
    if (thread !== undefined) fill(this.head, ...this.#facts(thread, known));
    const open = questions.ofThread(this.threadId);
    keyed(
      this.questions,
      open,
      ({ key }) => key,
      (question) => questionCard(this.app, question),
    );
    this.questions.hidden = open.length === 0;
    this.earlier.hidden = !known?.earlierCursor || known.transcript.size >= MAX_ENTRIES;
    if (this.shown === "usage") this.#drawUsage();
    this.composer.draw(known !== undefined && known.turnId !== null);
  }

  close() {
    this.off();
    this.list.close();
    this.timeline?.close();
  }

  #tab(name) {
    const button = h(
      "button",
      { type: "button", role: "tab", onclick: () => this.#go(name) },
      TABS[name],
    );
    button.addEventListener("keydown", ({ key }) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[key];
      if (step === undefined) return;
      const names = Object.keys(TABS);
      const other = names.at((names.indexOf(name) + step) % names.length);
      this.#go(other);
      this.tabs.get(other).focus();
    });
    return button;
  }

  #go(name) {
    this.app.go(`#/threads/${this.threadId}${name && `/${name}`}`);
  }

  #showTranscript() {
    this.detail.show(null);
    if (this.list.element.isConnected) return;
    fill(this.place, this.list.element, h(".timeline-foot", null, this.earlier, this.newest));
    this.list.reset();
  }

  #showUsage() {
    this.detail.show(null);
    fill(this.place, this.usage);
    this.#drawUsage();
  }

  #drawUsage() {
    const { threadId } = this;
    const known = this.app.threads.open.get(threadId);
    render(html`<${ThreadUsage} known=${known} threadId=${threadId} />`, this.usage);
  }

  #showWire() {
    this.timeline ??= this.#makeTimeline();
    const { filter, list, foot, fold, follow } = this.timeline;
    foot.append(this.earlier, h("span.grow"), fold, follow);
    fill(this.place, h(".bar", null, filter), list.element, foot);
    this.timeline.rebuild();
  }

  #makeTimeline() {
    const { app, threadId, detail } = this;
    const timeline = new Timeline({
      log: app.log,
      // What was heard of the thread before is in its history.
      entries: () => app.log.ofThread(threadId, app.threads.open.get(threadId)?.since ?? 0),
      concerns: (entry) => entry.threadId === threadId,
      label: "Messages of the thread",
      onselect: (row) => detail.show(row),
      onchange: (row) => detail.refresh(row),
    });
    timeline.setHistory(app.threads.open.get(threadId)?.history ?? []);
    return timeline;
  }

  #opened() {
    const { transcript, history } = this.app.threads.open.get(this.threadId);
    if (transcript !== this.list.transcript) this.list.show(transcript);
    this.timeline?.setHistory(history);
  }

  async #readEarlier() {
    const { threads, toasts } = this.app;
    this.earlier.disabled = true;
    await toasts.watch(threads.earlier(this.threadId), "Earlier turns could not be read");
    this.earlier.disabled = false;
  }

  // An entry of long ago is not read yet.
  async #reveal(key) {
    const { threads, toasts } = this.app;
    for (let page = 0; !this.list.reveal(key); page++) {
      const cursor = threads.open.get(this.threadId)?.earlierCursor;
      if (!cursor || page >= MAX_SEARCHED_PAGES) {
        toasts.fail("This thread has no such entry, or it is too far back.");
        return;
      }
      await threads.earlier(this.threadId);
    }
  }

  #facts(thread, known) {
    const settings = known?.settings;
    const facts = [
      settings?.model ?? thread.model,
      settings && `approvals ${text(settings.approvalPolicy)}`,
      settings && `sandbox ${settings.sandbox.type}`,
      known?.tokens && `${known.tokens.toLocaleString("en")} tokens`,
      thread.cwd,
    ];
    return [
      h(
        ".row",
        null,
        h("h1.grow.nowrap", null, titleOf(thread)),
        threadStatus(thread),
        copyButton("Copy id", () => thread.id),
      ),
      h("p.muted.nowrap", { title: thread.id }, facts.filter(Boolean).join(" · ")),
      known === undefined && this.#listenAgain(),
    ];
  }

  // The server unloaded the thread, or lost it with a restart.
  #listenAgain() {
    const { threads, toasts } = this.app;
    const listen = () =>
      toasts.watch(threads.listen(this.threadId), "The thread could not be loaded");
    return h(
      ".row",
      null,
      h("span.muted", null, "This page does not listen to the thread any more."),
      h("button", { type: "button", onclick: listen }, "Listen again"),
    );
  }
}

function text(policy) {
  return typeof policy === "string" ? policy : Object.keys(policy)[0];
}
