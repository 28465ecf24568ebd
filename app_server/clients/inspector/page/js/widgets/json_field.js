// A field for a JSON value, which says where the text is no JSON.

import { h } from "/js/core/dom.js";

let fields = 0;

/**
 * Make a field; `read()` returns its value, or undefined after it showed what is wrong. `accepts`
 * says what is wrong with a value, "" if nothing is.
 *
 * @param {string} label
 * @param {any} value
 * @param {{rows?: number, accepts?: (value: any) => string}} options
 */
export function jsonField(label, value, { rows = 6, accepts = () => "" } = {}) {
  const id = `json-${++fields}`;
  const problem = h(".problem", { id: `${id}-problem`, role: "alert" });
  const area = h("textarea.code", {
    id,
    rows,
    spellcheck: "false",
    "aria-describedby": problem.id,
  });
  area.value = JSON.stringify(value, null, 2);
  const read = () => {
    let parsed;
    let wrong;
    try {
      parsed = JSON.parse(area.value);
      wrong = accepts(parsed);
    } catch (error) {
      wrong = `This is no JSON: ${error.message}`;
    }
    problem.textContent = wrong;
    area.setAttribute("aria-invalid", wrong !== "");
    if (wrong === "") return parsed;
    area.focus();
    return undefined;
  };
  const element = h(".field", null, label && h("label", { for: id }, label), area, problem);
  return { element, area, read, write: (next) => (area.value = JSON.stringify(next, null, 2)) };
}
