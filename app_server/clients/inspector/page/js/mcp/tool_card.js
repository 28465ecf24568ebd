// One tool: what it is for, a form to call it, and what it returned.

import { fill, h } from "/js/core/dom.js";
import { duration } from "/js/core/format.js";
import { toolResult } from "/js/mcp/tool_result.js";
import { jsonTree } from "/js/widgets/json_tree.js";
import { schemaForm } from "/js/widgets/schema_form.js";

const HINTS = {
  readOnlyHint: "read-only",
  destructiveHint: "destructive",
  idempotentHint: "idempotent",
  openWorldHint: "open world",
};

/** The card is closed at first; its form is made when it is opened. */
export function toolCard(store, serverName, tool) {
  const body = h(".body.stack");
  const card = h(
    "details.tool",
    null,
    h(
      "summary",
      null,
      h("code", null, tool.name),
      h("span.muted.nowrap.grow", null, tool.title ?? firstLine(tool.description)),
      hints(tool).map((word) => h("span.tag", null, word)),
    ),
    body,
  );
  card.addEventListener("toggle", () => {
    if (card.open && body.childElementCount === 0) fill(body, ...open(store, serverName, tool));
  });
  return card;
}

function open(store, serverName, tool) {
  const form = schemaForm(tool.inputSchema);
  const outcome = h("div", { "aria-live": "polite" });
  const go = h("button.primary", { type: "submit" }, "Call");
  const submit = async (event) => {
    event.preventDefault();
    const args = form.read();
    if (args === undefined) return;
    go.disabled = true;
    fill(outcome, h("p.muted", null, "Waiting for the answer …"));
    const began = performance.now();
    const result = await store.callTool(serverName, tool.name, args).catch((error) => error);
    fill(outcome, toolResult(result, duration(performance.now() - began)));
    go.disabled = false;
  };
  return [
    tool.description && h("p.prose", null, tool.description),
    h("form.stack", { onsubmit: submit }, form.element, h(".actions", null, go, form.toggle)),
    outcome,
    h("details", null, h("summary.muted", null, "Definition"), jsonTree(tool)),
  ];
}

function hints(tool) {
  const given = tool.annotations ?? {};
  return Object.entries(HINTS).flatMap(([name, word]) => (given[name] === true ? [word] : []));
}

function firstLine(text) {
  return (text ?? "").split("\n", 1)[0];
}
