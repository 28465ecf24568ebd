// May the model have more rights?

import { h } from "/js/core/dom.js";
import { decisionButtons } from "/js/requests/decisions.js";
import { jsonTree } from "/js/widgets/json_tree.js";

export function permissionsQuestion({ params }, { answer }) {
  const { permissions } = params;
  return {
    title: "Grant these permissions?",
    content: [
      params.reason && h("p", null, params.reason),
      jsonTree(permissions),
      decisionButtons([
        {
          label: "Grant for this turn",
          look: "primary",
          choose: () => answer({ permissions, scope: "turn" }),
        },
        {
          label: "Grant for this session",
          choose: () => answer({ permissions, scope: "session" }),
        },
        {
          label: "Decline",
          look: "danger",
          choose: () => answer({ permissions: {}, scope: "turn" }),
        },
      ]),
    ],
  };
}
