// A row of buttons, one for each decision that is offered.

import { h } from "/js/core/dom.js";

/** `choices`: {label, look, choose}; `look` is "primary", "danger" or "". */
export function decisionButtons(choices) {
  return h(
    ".actions",
    null,
    choices.map(({ label, look = "", choose }) =>
      h(`button${look && `.${look}`}`, { type: "button", onclick: choose }, label),
    ),
  );
}

/** The decisions about commands and files that are plain words. */
export const WORDS = {
  accept: { label: "Approve", look: "primary" },
  acceptForSession: { label: "Approve for this session" },
  decline: { label: "Decline", look: "danger" },
  cancel: { label: "Decline and stop the turn", look: "danger" },
};
