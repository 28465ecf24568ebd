// A status as a word with a colour.

import { h } from "/js/core/dom.js";

/** `tone`: good, attention, bad, active, or "" for neither. */
export function statusSign(text, tone = "") {
  return h(`span.status${tone ? `.${tone}` : ""}`, null, text);
}
