// A question of an MCP server: a form, a page to visit, or whether a tool may run.

import { h } from "/js/core/dom.js";
import { decisionButtons } from "/js/requests/decisions.js";
import { externalLink } from "/js/widgets/external_link.js";
import { jsonTree } from "/js/widgets/json_tree.js";
import { schemaForm } from "/js/widgets/schema_form.js";

export function elicitationQuestion({ params }, { answer }) {
  const decline = {
    label: "Decline",
    look: "danger",
    choose: () => answer({ action: "decline", content: null }),
  };
  const cancel = { label: "Cancel", choose: () => answer({ action: "cancel", content: null }) };
  if (params._meta?.codex_approval_kind === "mcp_tool_call")
    return toolApproval(params, answer, decline, cancel);
  if (params.mode === "url") return page(params, answer, decline, cancel);
  return form(params, answer, decline, cancel);
}

function toolApproval({ serverName, message, _meta: meta }, answer, decline, cancel) {
  const accept = (persist) => () =>
    answer({ action: "accept", content: {}, _meta: persist ? { persist } : null });
  const lasting = new Set(meta.persist ?? []);
  return {
    title: `Call ${serverName}.${meta.tool_name ?? "a tool"}?`,
    content: [
      h("p", null, message),
      meta.tool_description && h("p.muted", null, meta.tool_description),
      jsonTree(meta.tool_params ?? {}),
      decisionButtons([
        { label: "Approve", look: "primary", choose: accept(null) },
        ...(lasting.has("session")
          ? [{ label: "Approve for this session", choose: accept("session") }]
          : []),
        ...(lasting.has("always") ? [{ label: "Always approve", choose: accept("always") }] : []),
        decline,
        cancel,
      ]),
    ],
  };
}

function page({ serverName, message, url }, answer, decline, cancel) {
  return {
    title: `${serverName} asks you to visit a page`,
    content: [
      h("p", null, message),
      externalLink(url),
      decisionButtons([
        {
          label: "I have done so",
          look: "primary",
          choose: () => answer({ action: "accept", content: null }),
        },
        decline,
        cancel,
      ]),
    ],
  };
}

function form({ serverName, message, requestedSchema }, answer, decline, cancel) {
  const fields = schemaForm(requestedSchema ?? { type: "object", properties: {} });
  const send = () => {
    const content = fields.read();
    if (content !== undefined) answer({ action: "accept", content });
  };
  return {
    title: `${serverName} asks`,
    content: [
      h("p", null, message),
      fields.element,
      h(".row", null, fields.toggle),
      decisionButtons([{ label: "Send", look: "primary", choose: send }, decline, cancel]),
    ],
  };
}
