// One thread: its facts, its open questions, its messages, and what the user says to it.

import { fill, h, keyed } from "/js/core/dom.js";
import { questionCard } from "/js/requests/question_card.js";
import { Composer } from "/js/threads/composer.js";
import { threadStatus, titleOf } from "/js/threads/thread_list.js";
import { Timeline } from "/js/threads/timeline.js";
import { copyButton } from "/js/widgets/copy_button.js";

export class ThreadPane {
  /** `detail` shows the message that is selected. */
  constructor(app, threadId, detail) {
    this.app = app;
    this.threadId = threadId;
    this.head = h("header.thread-head");
    this.questions = h(".thread-questions", { "aria-label": "Open questions" });
    this.timeline = new Timeline({
      log: app.log,
      // What was heard of the thread before is in its history.
      entries: () => app.log.ofThread(threadId, app.threads.open.get(threadId)?.since ?? 0),
      concerns: (entry) => entry.threadId === threadId,
      label: "Messages of the thread",
      onselect: (row) => detail.show(row),
      onchange: (row) => detail.refresh(row),
    });
    this.composer = new Composer(app, threadId);
    this.earlier = h("button.plain", { type: "button", hidden: true }, "Earlier turns");
    this.earlier.addEventListener("click", () => this.#readEarlier());
    this.timeline.foot.append(
      this.earlier,
      h("span.grow"),
      this.timeline.fold,
      this.timeline.follow,
    );
    this.element = h(
      "section.pane",
      { "aria-label": "Thread" },
      this.head,
      this.questions,
      h(".bar", null, this.timeline.filter),
      this.timeline.list.element,
      this.timeline.foot,
      this.composer.element,
    );
    this.#setHistory();
    this.off = app.threads.on("opened", (id) => id === threadId && this.#setHistory());
    this.draw();
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
    this.earlier.hidden = !known?.earlierCursor;
    this.composer.draw(known !== undefined && known.turnId !== null);
  }

  close() {
    this.off();
    this.timeline.close();
  }

  async #readEarlier() {
    const { threads, toasts } = this.app;
    this.earlier.disabled = true;
    await toasts.watch(threads.earlier(this.threadId), "Earlier turns could not be read");
    this.earlier.disabled = false;
  }

  #setHistory() {
    this.timeline.setHistory(this.app.threads.open.get(this.threadId)?.history ?? []);
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
