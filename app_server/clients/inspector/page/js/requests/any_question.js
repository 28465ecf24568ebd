// A question that has no form here: its params, and an answer as JSON.

import { h } from "/js/core/dom.js";
import { decisionButtons } from "/js/requests/decisions.js";
import { jsonField } from "/js/widgets/json_field.js";
import { jsonTree } from "/js/widgets/json_tree.js";

// What a usual answer looks like, to begin with.
const BEGINNINGS = {
  "item/tool/call": () => ({ contentItems: [{ type: "inputText", text: "" }], success: true }),
  "currentTime/read": () => ({ currentTimeAt: Math.floor(Date.now() / 1000) }),
  execCommandApproval: () => ({ decision: "approved" }),
  applyPatchApproval: () => ({ decision: "approved" }),
};

const REFUSED = { code: -32000, message: "Refused in the inspector" };

export function anyQuestion({ method, params }, { answer, refuse }) {
  const field = jsonField("Answer", BEGINNINGS[method]?.() ?? {});
  const send = () => {
    const result = field.read();
    if (result !== undefined) answer(result);
  };
  return {
    title: `The server asks ${method}`,
    content: [
      jsonTree(params),
      h(".field", null, field.element),
      decisionButtons([
        { label: "Send", look: "primary", choose: send },
        { label: "Refuse", look: "danger", choose: () => refuse(REFUSED) },
      ]),
    ],
  };
}
