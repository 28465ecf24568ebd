// A change of a file as its diff, with signs and colours.

import { h } from "/js/core/dom.js";

const MAX_LINES = 400;
const LOOKS = { "+": "span.add", "-": "span.remove", "@": "span.place" };

export function diffOf(change) {
  const lines = (change.diff ?? "").split("\n");
  const shown = lines.slice(0, MAX_LINES).map((line) => {
    const look = LOOKS[line[0]];
    return look === undefined ? `${line}\n` : h(look, null, `${line}\n`);
  });
  const rest = lines.length - MAX_LINES;
  return h(
    ".stack.tight",
    null,
    h(".row", null, h("code.grow.nowrap", null, change.path), h("span.tag", null, change.kind?.type ?? change.kind)),
    h("pre.diff", { tabindex: 0, "aria-label": `Diff of ${change.path}` }, shown, rest > 0 && `… and ${rest} more lines`),
  );
}
