// The view of what the server asks: open questions, and threads elsewhere that wait for somebody.

import { fill, h, keyed, onFrame } from "/js/core/dom.js";
import { questionCard } from "/js/requests/question_card.js";
import { threadStatus, titleOf } from "/js/threads/thread_list.js";
import { emptyState } from "/js/widgets/empty.js";

export function requestsView(app) {
  const cards = h(".stack");
  const others = h(".stack.tight");
  const none = h("div");
  const draw = onFrame(() => {
    const open = [...app.questions.open.values()];
    keyed(
      cards,
      open,
      ({ key }) => key,
      (question) => questionCard(app, question, { linksThread: true }),
    );
    const waiting = waitingElsewhere(app);
    fill(
      others,
      waiting.length > 0 && [
        h("h3", null, "Threads that wait, and are not open here"),
        waiting.map(otherThread),
      ],
    );
    fill(none, open.length + waiting.length === 0 && nothing());
  });
  const off = [app.questions.on("changed", draw), app.threads.on("changed", draw)];
  draw();
  return {
    title: "Requests",
    element: h(
      ".view",
      null,
      h(".bar", null, h("h1", null, "Requests")),
      h(".scroll.pad.stack.narrow", { tabindex: -1 }, none, cards, others),
    ),
    close: () => off.forEach((end) => end()),
  };
}

/** Threads whose status says that they wait, and whose questions are not sent to this page. */
export function waitingElsewhere(app) {
  return [...app.threads.threads.values()].filter(
    ({ id, status }) => status?.activeFlags?.length > 0 && !app.threads.open.has(id),
  );
}

function otherThread(thread) {
  return h(
    ".row",
    null,
    h("a.grow.nowrap", { href: `#/threads/${thread.id}` }, titleOf(thread)),
    threadStatus(thread),
  );
}

function nothing() {
  return emptyState(
    "Nothing is asked",
    "When a thread wants to run a command, change files, or ask its user something, the question appears here, and beside the thread. Whoever answers first, here or in another client, settles it.",
  );
}
