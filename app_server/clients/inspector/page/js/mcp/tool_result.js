// What a tool returned: its content piece by piece, then everything as JSON.

import { CallError } from "/js/core/connection.js";
import { h } from "/js/core/dom.js";
import { jsonTree } from "/js/widgets/json_tree.js";
import { statusSign } from "/js/widgets/status.js";

/** `result` is the answer, or the error of the call. */
export function toolResult(result, time) {
  if (result instanceof CallError) {
    return h(
      ".outcome.failed",
      null,
      h(".row", null, statusSign("refused", "bad"), h("span.muted", null, time)),
      h("p.prose", null, result.message),
      result.data ? jsonTree(result.data) : null,
    );
  }
  const failed = result.isError === true;
  return h(
    `.outcome${failed ? ".failed" : ""}`,
    null,
    h(
      ".row",
      null,
      failed ? statusSign("tool error", "bad") : statusSign("succeeded", "good"),
      h("span.muted", null, time),
    ),
    (result.content ?? []).map(piece),
    result.structuredContent === undefined
      ? null
      : h(
          ".stack.tight",
          null,
          h("h2.heading", null, "Structured content"),
          jsonTree(result.structuredContent),
        ),
    h("details", null, h("summary.muted", null, "Whole answer"), jsonTree(result)),
  );
}

function piece(content) {
  if (content?.type === "text") return h("pre", { tabindex: 0 }, content.text);
  if (content?.type === "resource" && content.resource?.text !== undefined) {
    return h("pre", { tabindex: 0 }, content.resource.text);
  }
  return jsonTree(content);
}
