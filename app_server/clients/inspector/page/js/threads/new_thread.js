// The dialog that starts a thread.

import { h } from "/js/core/dom.js";
import { openDialog } from "/js/widgets/dialog.js";

const APPROVALS = ["untrusted", "on-request", "never"];
const SANDBOXES = ["read-only", "workspace-write", "danger-full-access"];

/** Ask for the settings of a thread, start it, and show it. */
export async function startThread(app) {
  const models = (await app.connection.call("model/list", {}).catch(() => ({ data: [] }))).data;
  const cwd = h("input", { id: "new-cwd", placeholder: "the server's own", spellcheck: "false" });
  const model = select(
    "new-model",
    models.map(({ id, displayName }) => [id, displayName ?? id]),
  );
  const approval = select(
    "new-approval",
    APPROVALS.map((word) => [word, word]),
  );
  const sandbox = select(
    "new-sandbox",
    SANDBOXES.map((word) => [word, word]),
  );
  const ephemeral = h("input", { type: "checkbox", id: "new-ephemeral" });
  openDialog({
    title: "New thread",
    submit: "Start",
    content: h(
      ".form",
      null,
      field("Working directory", cwd),
      field("Model", model),
      h(".pair", null, field("Approvals", approval), field("Sandbox", sandbox)),
      h("label.check", { for: "new-ephemeral" }, ephemeral, "Keep it in memory only"),
    ),
    async onsubmit() {
      const chosen = {
        cwd: cwd.value.trim(),
        model: model.value,
        approvalPolicy: approval.value,
        sandbox: sandbox.value,
      };
      const params = Object.fromEntries(Object.entries(chosen).filter(([, value]) => value !== ""));
      if (ephemeral.checked) params.ephemeral = true;
      const id = await app.toasts.watch(
        app.threads.start(params),
        "The thread could not be started",
      );
      if (id === undefined) return false;
      app.go(`#/threads/${id}`);
      return true;
    },
  });
}

function select(id, options) {
  const usual = h("option", { value: "" }, "as configured");
  return h(
    "select",
    { id },
    usual,
    options.map(([value, label]) => h("option", { value }, label)),
  );
}

function field(label, control) {
  return h(".field", null, h("label", { for: control.id }, label), control);
}
