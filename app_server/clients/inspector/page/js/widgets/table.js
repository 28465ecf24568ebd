// A table; the first column is left, numbers are right.

import { h } from "/js/core/dom.js";

/**
 * Make a table: `caption` names it, `columns` are [title, "number" or ""], `rows` are lists of
 * values or elements.
 */
export function table(caption, columns, rows) {
  const looks = columns.map(([, kind]) => (kind ? `.${kind}` : ""));
  return h(
    ".table",
    { tabindex: 0, role: "group", "aria-label": caption },
    h(
      "table",
      null,
      h("caption.visually-hidden", null, caption),
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          columns.map(([title], index) => h(`th${looks[index]}`, { scope: "col" }, title)),
        ),
      ),
      h(
        "tbody",
        null,
        rows.map((row) =>
          h(
            "tr",
            null,
            row.map((value, index) => h(`td${looks[index]}`, null, value)),
          ),
        ),
      ),
    ),
  );
}
