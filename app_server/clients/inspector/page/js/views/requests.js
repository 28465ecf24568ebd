// The view of what the server asks, of all threads, and of threads whose questions do not come here.

import { fill, h, keyed, onFrame } from "/js/core/dom.js";
import { announceButton } from "/js/requests/announce.js";
import { questionCard } from "/js/requests/question_card.js";
import { threadStatus, titleOf } from "/js/threads/thread_list.js";
import { emptyState } from "/js/widgets/empty.js";

export function requestsView(app, parts) {
  const cards = h(".stack.questions");
  const others = h(".stack.tight");
  const none = h("div");
  let wantsOldest = false;
  const draw = onFrame(() => {
    const open = app.questions.oldestFirst;
    keyed(
      cards,
      open,
      ({ key }) => key,
      (question) => questionCard(app, question, { linksThread: true }),
    );
    const { elsewhere, refused } = app.waiting;
    fill(
      others,
      elsewhere.length > 0 && [
        h("h2.heading", null, "Threads that wait, and do not ask this page"),
        elsewhere.map((thread) => otherThread(thread, refused.get(thread.id))),
      ],
    );
    fill(none, open.length + elsewhere.length === 0 && nothing());
    if (wantsOldest && cards.firstElementChild instanceof HTMLElement) {
      wantsOldest = false;
      cards.firstElementChild.focus();
      cards.firstElementChild.scrollIntoView({ block: "nearest" });
    }
  });
  const move = ([which]) => {
    wantsOldest = which === "oldest";
    // The same key goes there again.
    if (wantsOldest) history.replaceState(null, "", "#/requests");
    draw();
  };
  const off = [
    app.questions.on("changed", draw),
    app.threads.on("changed", draw),
    app.waiting.on("changed", draw),
  ];
  move(parts);
  return {
    element: h(
      ".view",
      null,
      h(".bar", null, h("h1.grow", null, "Requests"), announceButton(app)),
      h(".scroll.pad.stack.narrow", { tabindex: -1 }, none, cards, others),
    ),
    move,
    close: () => off.forEach((end) => end()),
  };
}

function otherThread(thread, reason) {
  return h(
    ".row",
    null,
    h("a.nowrap", { href: `#/threads/${thread.id}` }, titleOf(thread)),
    threadStatus(thread),
    h("span.muted.grow.nowrap", { title: reason }, reason ?? "too many wait already"),
  );
}

function nothing() {
  return emptyState(
    "Nothing is asked",
    "When a thread wants to run a command, change files, or ask its user something, the question appears here, and beside the thread. Whoever answers first, here or in another client, settles it.",
  );
}
