// A link to somewhere else, whose address somebody else wrote.

import { h } from "/js/core/dom.js";

/** Make a link that opens a tab of its own; an address that is not of the web is only shown. */
export function externalLink(address, text = address) {
  if (!/^https?:\/\//i.test(address)) return h("code", null, address);
  return h("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, text);
}
