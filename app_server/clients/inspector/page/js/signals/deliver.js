// The dialog that puts a message into a thread from outside.

import { h } from "/js/core/dom.js";
import { titleOf } from "/js/threads/thread_list.js";
import { openDialog } from "/js/widgets/dialog.js";

const SOURCE = "app-server inspector";

/** Ask for a signal, and deliver it. */
export function deliverSignal(app) {
  const threads = [...app.threads.threads.values()];
  const target = h(
    "select",
    { id: "signal-target" },
    threads.map((thread) => h("option", { value: thread.id }, titleOf(thread))),
  );
  const sender = h("input", { id: "signal-sender", value: "inspector", required: true });
  const type = h("input", { id: "signal-type", value: "Question", required: true });
  const summary = h("textarea", { id: "signal-summary", rows: 3, required: true });
  const mode = h(
    "select",
    { id: "signal-mode" },
    h("option", { value: "wake" }, "wake: an idle thread begins a turn"),
    h("option", { value: "passive" }, "passive: it waits for the next turn"),
  );
  const busy = h(
    "select",
    { id: "signal-busy" },
    h("option", { value: "queue" }, "queue: after that turn"),
    h("option", { value: "steer" }, "steer: into its next request"),
  );
  openDialog({
    title: "Send a signal",
    submit: "Send",
    content: h(
      ".form",
      null,
      field("To the thread", target),
      h(".pair", null, field("From", sender), field("Type", type)),
      field("What the model reads", summary),
      h(".pair", null, field("Mode", mode), field("While a turn runs", busy)),
    ),
    async onsubmit() {
      const signal = {
        id: crypto.randomUUID(),
        source: SOURCE,
        type: type.value,
        sender: sender.value,
        summary: summary.value,
      };
      const params = {
        signal,
        target: { threadId: target.value },
        mode: mode.value,
        onBusy: mode.value === "wake" ? busy.value : null,
      };
      return (
        (await app.toasts.watch(app.signals.deliver(params), "The signal was not taken")) !==
        undefined
      );
    },
  });
}

function field(label, control) {
  return h(".field", null, h("label", { for: control.id }, label), control);
}
