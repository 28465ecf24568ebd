// A change of a file as its diff, with signs and colours.

import { h } from "/js/core/dom.js";

const MAX_LINES = 400;
const LOOKS = { "+": "span.add", "-": "span.remove", "@": "span.place" };

// A file that is new, or goes, comes as its content.
const WHOLE = { add: "+", delete: "-" };

/** `change` is one of an item `fileChange`. */
export function diffOf(change) {
  const sign = WHOLE[change.kind?.type] ?? "";
  const lines = (change.diff ?? "")
    .replace(/\n$/, "")
    .split("\n")
    .map((line) => sign + line);
  const shown = lines.slice(0, MAX_LINES).map((line) => {
    const look = LOOKS[line[0]];
    return look === undefined ? `${line}\n` : h(look, null, `${line}\n`);
  });
  const rest = lines.length - MAX_LINES;
  return h(
    ".stack.tight",
    null,
    h(
      ".row",
      null,
      h("code.grow.nowrap", null, change.path),
      h("span.tag", null, change.kind?.type ?? change.kind),
    ),
    h(
      "pre.diff",
      { tabindex: 0, "aria-label": `Diff of ${change.path}` },
      shown,
      rest > 0 && `… and ${rest} more lines`,
    ),
  );
}
