// What a place shows while it has nothing: what would be here, and how to get it.

import { h } from "/js/core/dom.js";

export function emptyState(title, text, ...actions) {
  return h(".empty", null, h("strong", null, title), h("p", null, text), actions);
}
