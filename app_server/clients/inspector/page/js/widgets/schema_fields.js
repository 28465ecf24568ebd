// The fields of a form, one maker for each kind of schema.
//
// A field is {element, control, read}: `read(problems)` returns the value, undefined if it is left
// out or wrong. What is wrong is shown, and added to `problems` as {control, clear}.

import { h } from "/js/core/dom.js";
import { jsonField } from "/js/widgets/json_field.js";
import {
  fieldKind,
  lengthProblem,
  numberProblem,
  optionsOf,
  resolve,
  textProblem,
  typeName,
} from "/js/widgets/schema.js";

const MAX_ENTRIES = 100;
const LEFT_OUT = "(left out)";
let fields = 0;

/** The fields of an object's properties; `count` says how many. */
export function objectFields(schema, root, depth) {
  const required = new Set(schema.required ?? []);
  const parts = Object.entries(schema.properties ?? {}).map(([name, definition]) => ({
    name,
    ...labelled(name, definition, root, { isRequired: required.has(name), depth }),
  }));
  return {
    count: parts.length,
    element: h(
      depth === 0 ? ".form" : "fieldset.group",
      null,
      parts.map(({ element }) => element),
    ),
    read(problems) {
      const values = parts.map(({ name, read }) => [name, read(problems)]);
      const given = values.filter(([, value]) => value !== undefined);
      return given.length === 0 ? undefined : Object.fromEntries(given);
    },
  };
}

// A field with its name, its type and what its schema says of it.
function labelled(name, definition, root, { isRequired, depth }) {
  const { schema } = resolve(definition, root);
  const id = `field-${++fields}`;
  const problem = h(".problem", { id: `${id}-problem`, role: "alert" });
  const say = (control, text) => {
    problem.textContent = text;
    control.setAttribute("aria-invalid", text !== "");
  };
  // Shows what is wrong, or that nothing is any more; returns whether something is.
  const isWrong = (problems, control, text) => {
    say(control, text);
    if (text !== "") problems.push({ control, clear: () => say(control, "") });
    return text !== "";
  };
  const field = MAKERS[fieldKind(schema, depth)]({ schema, root, depth, isRequired, isWrong });
  field.control.id ||= id;
  field.control.setAttribute("aria-describedby", problem.id);
  const words = [
    schema.title ?? name,
    isRequired && h("span.required", { title: "required" }, " *"),
    h("span.type", null, typeName(schema)),
  ];
  // Several controls together have the name of their group, and each its own.
  const isGroup = field.control.matches("fieldset");
  const heading = isGroup
    ? h("span.label", { id: `${id}-label` }, words)
    : h("label", { for: field.control.id }, words);
  if (isGroup) field.control.setAttribute("aria-labelledby", heading.id);
  const hint = schema.description && h(".hint", null, schema.description);
  return { element: h(".field", null, heading, hint, field.element, problem), read: field.read };
}

const MAKERS = { text, number, boolean, choice, choices, list, object, json };

function text({ schema, isRequired, isWrong }) {
  const isLong = (schema.maxLength ?? 0) > 200 || schema.format === "textarea";
  const control = h(isLong ? "textarea" : "input", {
    type: INPUT_TYPES[schema.format] ?? "text",
    rows: 3,
  });
  control.value = schema.default ?? "";
  const read = (problems) => {
    const value = control.value;
    const isLeftOut = value === "" && !isRequired;
    const isMissing = value === "" && isRequired && schema.minLength !== 0;
    const wrong = isLeftOut ? "" : isMissing ? "Fill this in." : textProblem(schema, value);
    return isWrong(problems, control, wrong) || isLeftOut ? undefined : value;
  };
  return { element: control, control, read };
}

const INPUT_TYPES = { email: "email", uri: "url", date: "date" };

function number({ schema, isRequired, isWrong }) {
  const control = h("input", { type: "text", inputmode: "decimal" });
  control.value = schema.default ?? "";
  const read = (problems) => {
    const written = control.value.trim();
    const isLeftOut = written === "" && !isRequired;
    const value = written === "" ? Number.NaN : Number(written);
    const wrong = isLeftOut ? "" : numberProblem(schema, value);
    return isWrong(problems, control, wrong) || isLeftOut ? undefined : value;
  };
  return { element: control, control, read };
}

function boolean(parts) {
  const { schema, isRequired } = parts;
  // A box cannot say "left out".
  if (!isRequired && schema.default === undefined)
    return choice({ ...parts, schema: { ...schema, enum: [true, false] } });
  const control = h("input", { type: "checkbox", checked: schema.default === true });
  return { element: h(".check", null, control), control, read: () => control.checked };
}

function choice({ schema, isRequired, isWrong }) {
  const options = optionsOf(schema);
  const hasDefault = schema.default !== undefined;
  const empty = h("option", { value: "" }, isRequired ? "Choose …" : LEFT_OUT);
  const control = h(
    "select",
    null,
    isRequired && hasDefault ? null : empty,
    options.map(({ label }, index) => h("option", { value: index }, label)),
  );
  if (hasDefault) control.value = options.findIndex(({ value }) => value === schema.default);
  const read = (problems) => {
    const isMissing = isRequired && control.value === "";
    isWrong(problems, control, isMissing ? "Choose one." : "");
    return control.value === "" ? undefined : options[control.value].value;
  };
  return { element: control, control, read };
}

function choices({ schema, root, isRequired, isWrong }) {
  const { schema: items } = resolve(schema.items, root);
  const chosen = new Set(schema.default ?? []);
  const boxes = optionsOf(items).map(({ value, label }) => {
    const box = h("input", { type: "checkbox", checked: chosen.has(value) });
    return { value, box, element: h("label.check", null, box, label) };
  });
  const element = h(
    "fieldset.stack.tight",
    null,
    boxes.map(({ element }) => element),
  );
  const read = (problems) => {
    const values = boxes.filter(({ box }) => box.checked).map(({ value }) => value);
    const isLeftOut = values.length === 0 && !isRequired;
    const wrong = isLeftOut ? "" : lengthProblem(schema, values.length);
    return isWrong(problems, element, wrong) || isLeftOut ? undefined : values;
  };
  return { element, control: element, read };
}

function list({ schema, root, depth, isRequired, isWrong }) {
  const rows = h(".stack.tight");
  const add = h("button", { type: "button" }, "Add");
  const entries = [];
  const append = (value) => {
    if (entries.length >= MAX_ENTRIES) return;
    const definition = value === undefined ? schema.items : { ...schema.items, default: value };
    const part = labelled(`${entries.length + 1}`, definition, root, {
      isRequired: true,
      depth: depth + 1,
    });
    const remove = h("button.plain", { type: "button", "aria-label": "Remove" }, "×");
    const entry = { ...part, row: h(".entry", null, h(".grow", null, part.element), remove) };
    remove.addEventListener("click", () => {
      entries.splice(entries.indexOf(entry), 1);
      entry.row.remove();
    });
    entries.push(entry);
    rows.append(entry.row);
  };
  for (const value of schema.default ?? []) append(value);
  add.addEventListener("click", () => append());
  const read = (problems) => {
    const values = entries.map((entry) => entry.read(problems));
    const isLeftOut = values.length === 0 && !isRequired;
    const wrong = isLeftOut ? "" : lengthProblem(schema, values.length);
    return isWrong(problems, element, wrong) || isLeftOut ? undefined : values;
  };
  const element = h("fieldset.stack.tight", null, rows, h(".row", null, add));
  return { element, control: element, read };
}

function object({ schema, root, depth, isRequired }) {
  const part = objectFields(schema, root, depth + 1);
  const read = (problems) => {
    const own = [];
    const value = part.read(own);
    if (value === undefined && !isRequired) {
      // Nothing was filled in: what must be in the object need not be there without it.
      for (const { clear } of own) clear();
      return undefined;
    }
    problems.push(...own);
    return value ?? {};
  };
  return { element: part.element, control: part.element, read };
}

function json({ schema, isRequired, isWrong }) {
  const field = jsonField("", schema.default ?? null, { rows: 3 });
  if (schema.default === undefined) field.area.value = "";
  const read = (problems) => {
    const isMissing = field.area.value.trim() === "";
    if (
      isWrong(problems, field.area, isMissing && isRequired ? "Fill this in, as JSON." : "") ||
      isMissing
    )
      return undefined;
    const value = field.read();
    // The field says itself what is wrong with its text.
    if (value === undefined) problems.push({ control: field.area, clear: () => {} });
    return value;
  };
  return { element: field.element, control: field.area, read };
}
