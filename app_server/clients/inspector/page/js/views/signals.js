// The view of signals: messages from outside, and how far each has come.

import { fill, h, keyed, onFrame } from "/js/core/dom.js";
import { ago, oneLine, shortId } from "/js/core/format.js";
import { deliverSignal } from "/js/signals/deliver.js";
import { keyOf } from "/js/signals/signal_store.js";
import { canRecall, stagesOf } from "/js/signals/stages.js";
import { titleOf } from "/js/threads/thread_list.js";
import { emptyState } from "/js/widgets/empty.js";

export function signalsView(app) {
  const { signals, threads, connection } = app;
  const cards = h(".stack.tight");
  const none = h("div");
  const send = h(
    "button.primary",
    { type: "button", onclick: () => deliverSignal(app) },
    "Send a signal",
  );
  const again = h("button", { type: "button" }, "Refresh");

  const draw = onFrame(() => {
    const all = [...(signals.receipts?.values() ?? [])];
    keyed(
      cards,
      all,
      keyOf,
      () => h("article.card"),
      (card, receipt) => fill(card, ...parts(app, receipt)),
    );
    fill(none, all.length === 0 && nothing(signals.problem));
    send.disabled = !connection.isReady || threads.threads.size === 0;
    send.title = threads.threads.size === 0 ? "A signal goes to a thread, and there is none" : "";
  });
  const refresh = () => connection.isReady && signals.refresh();
  again.addEventListener("click", refresh);
  const off = [
    signals.on("changed", draw),
    threads.on("changed", draw),
    connection.on("ready", refresh),
  ];
  draw();
  refresh();
  return {
    element: h(
      ".view",
      null,
      h(".bar", null, h("h1.grow", null, "Signals"), again, send),
      h(".scroll.pad.stack.narrow", { tabindex: -1 }, none, cards),
    ),
    close: () => off.forEach((end) => end()),
  };
}

function parts({ signals, threads, toasts }, receipt) {
  const thread = threads.threads.get(receipt.threadId);
  const recall = () => toasts.watch(signals.recall(receipt), "The signal could not be recalled");
  return [
    h(
      ".row",
      null,
      h(
        "code.nowrap",
        { title: receipt.signalId },
        `${receipt.source} / ${shortId(receipt.signalId)}`,
      ),
      h("span.muted", null, "to"),
      h(
        "a.nowrap.grow",
        { href: `#/threads/${receipt.threadId}` },
        thread ? titleOf(thread) : receipt.threadId,
      ),
      receipt.woken && h("span.tag", null, "woke the thread"),
      h("span.tag", null, `was ${receipt.recipientState}`),
      h("span.muted", null, ago(receipt.at)),
      canRecall(receipt) && h("button", { type: "button", onclick: recall }, "Recall"),
    ),
    stagesOf(receipt),
    receipt.error && h("p.muted", null, `${receipt.error.code}: ${receipt.error.message}`),
  ];
}

function nothing(problem) {
  if (problem !== "") {
    return emptyState("The signals could not be listed", oneLine(problem, 300));
  }
  return emptyState(
    "No signals",
    "A signal is a message from outside that is put into a thread, once, with a receipt. Send one here, or with “app-server signal send”. Stages of signals are followed live in threads that are open here.",
  );
}
