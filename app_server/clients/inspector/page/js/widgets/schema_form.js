// A form made from the JSON Schema of an object, which can also be filled in as JSON.

import { h } from "/js/core/dom.js";
import { jsonField } from "/js/widgets/json_field.js";
import { resolve } from "/js/widgets/schema.js";
import { objectFields } from "/js/widgets/schema_fields.js";

/**
 * Make a form. `element` and `toggle`, a button, are to be shown; `read()` returns the object, or undefined after it showed
 * what is wrong and put the focus there.
 */
export function schemaForm(definition) {
  const root = definition ?? {};
  const { schema } = resolve(root, root);
  const fields = objectFields(schema, root, 0);
  const json = jsonField("Arguments as JSON", {}, { rows: 8, accepts: anObject });
  const hasFields = fields.count > 0;
  const toggle = h("button.plain", { type: "button", "aria-pressed": "false" }, "As JSON");
  const shown = h("div", null, fields.element);
  let asJson = false;
  const show = (next) => {
    asJson = next;
    toggle.setAttribute("aria-pressed", asJson);
    shown.replaceChildren(asJson ? json.element : fields.element);
  };
  toggle.addEventListener("click", () => {
    if (!asJson) json.write(fields.read([]) ?? {});
    show(!asJson);
  });
  if (!hasFields) {
    fields.element.replaceChildren(h("p.muted", null, "No arguments."));
    // A schema that says nothing takes anything.
    toggle.hidden = schema.additionalProperties === false;
  }
  return {
    element: shown,
    toggle,
    read() {
      if (asJson) return json.read();
      const problems = [];
      const value = fields.read(problems);
      focusOn(problems[0]?.control);
      return problems.length === 0 ? (value ?? {}) : undefined;
    },
  };
}

// A group of controls takes no focus itself.
function focusOn(control) {
  (control?.querySelector("input, button") ?? control)?.focus();
}

function anObject(value) {
  const fits = value !== null && typeof value === "object" && !Array.isArray(value);
  return fits ? "" : "Must be a JSON object.";
}
