// May files be changed?

import { h } from "/js/core/dom.js";
import { decisionButtons, WORDS } from "/js/requests/decisions.js";
import { element, html } from "/js/core/html.js";
import { Patch } from "/js/transcript/patch.js";

export function fileQuestion({ params }, { answer, threads }) {
  // The question names the item; its changes came with `item/started`.
  const changes = threads.item(params)?.changes ?? [];
  return {
    title: "Change these files?",
    content: [
      params.reason && h("p", null, params.reason),
      params.grantRoot &&
        h("p", null, "This would allow writes below ", h("code", null, params.grantRoot)),
      changes.map((change) => element(html`<${Patch} change=${change} />`)),
      decisionButtons(
        Object.entries(WORDS).map(([decision, look]) => ({
          ...look,
          choose: () => answer({ decision }),
        })),
      ),
    ],
  };
}
