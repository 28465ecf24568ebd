// What a JSON Schema asks for, as far as a form can show it. No elements here.
// Source: JSON Schema 2020-12, Validation.

const MAX_DEPTH = 6;

/**
 * Resolve what a schema refers to within its document, and take "or null" off.
 *
 * Returns {schema, nullable}. What cannot be resolved is {} and becomes a JSON field.
 */
export function resolve(schema, root, depth = 0) {
  if (typeof schema !== "object" || schema === null || depth > MAX_DEPTH)
    return { schema: {}, nullable: false };
  if (typeof schema.$ref === "string") {
    const { $ref, ...rest } = schema;
    const found = resolve(lookUp($ref, root), root, depth + 1);
    return { schema: { ...found.schema, ...rest }, nullable: found.nullable };
  }
  if (Array.isArray(schema.type)) {
    const types = schema.type.filter((type) => type !== "null");
    const nullable = types.length < schema.type.length;
    return { schema: { ...schema, type: types.length === 1 ? types[0] : types }, nullable };
  }
  const choices = schema.anyOf ?? (schema.oneOf?.every(isConst) ? undefined : schema.oneOf);
  if (choices !== undefined) {
    const { anyOf, oneOf, ...rest } = schema;
    const others = choices.filter((choice) => choice?.type !== "null");
    if (others.length === 1) {
      const found = resolve(others[0], root, depth + 1);
      return { schema: { ...found.schema, ...rest }, nullable: true };
    }
  }
  return { schema, nullable: false };
}

/** What field a resolved schema gets: text, number, boolean, choice, choices, list, object, json. */
export function fieldKind(schema, depth = 0) {
  if (optionsOf(schema) !== null) return "choice";
  switch (schema.type) {
    case "string":
      return "text";
    case "number":
    case "integer":
      return "number";
    case "boolean":
      return "boolean";
    case "array":
      if (schema.items === undefined || depth > MAX_DEPTH) return "json";
      return optionsOf(schema.items) !== null ? "choices" : "list";
    case "object":
      return schema.properties === undefined || depth > MAX_DEPTH ? "json" : "object";
    default:
      return "json";
  }
}

/** The values that may be chosen: [{value, label}]; null if anything may be written. */
export function optionsOf(schema) {
  if (Array.isArray(schema.enum)) {
    return schema.enum.map((value, index) => ({
      value,
      label: String(schema.enumNames?.[index] ?? value),
    }));
  }
  const titled = schema.oneOf ?? schema.anyOf;
  if (Array.isArray(titled) && titled.length > 0 && titled.every(isConst)) {
    return titled.map((option) => ({
      value: option.const,
      label: String(option.title ?? option.const),
    }));
  }
  if (schema.const !== undefined) return [{ value: schema.const, label: String(schema.const) }];
  return null;
}

/** What a type is called beside its field. */
export function typeName(schema) {
  if (optionsOf(schema) !== null) return "choice";
  if (schema.type === "array") return `list of ${schema.items?.type ?? "values"}`;
  return [schema.type ?? "JSON", schema.format].flat().filter(Boolean).join(" · ");
}

/** Why a text does not fit; "" if it does. */
export function textProblem(schema, text) {
  const length = [...text].length;
  if (schema.minLength !== undefined && length < schema.minLength)
    return `At least ${schema.minLength} characters.`;
  if (schema.maxLength !== undefined && length > schema.maxLength)
    return `At most ${schema.maxLength} characters.`;
  if (schema.pattern !== undefined && !matches(schema.pattern, text))
    return `Must match ${schema.pattern}`;
  return "";
}

/** Why a number does not fit; "" if it does. */
export function numberProblem(schema, number) {
  if (!Number.isFinite(number)) return "Must be a number.";
  if (schema.type === "integer" && !Number.isInteger(number)) return "Must be a whole number.";
  if (schema.minimum !== undefined && number < schema.minimum) return `At least ${schema.minimum}.`;
  if (schema.maximum !== undefined && number > schema.maximum) return `At most ${schema.maximum}.`;
  if (schema.exclusiveMinimum !== undefined && number <= schema.exclusiveMinimum)
    return `More than ${schema.exclusiveMinimum}.`;
  if (schema.exclusiveMaximum !== undefined && number >= schema.exclusiveMaximum)
    return `Less than ${schema.exclusiveMaximum}.`;
  return "";
}

/** Why a list is too short or too long; "" if it is neither. */
export function lengthProblem(schema, length) {
  if (schema.minItems !== undefined && length < schema.minItems)
    return `At least ${schema.minItems}.`;
  if (schema.maxItems !== undefined && length > schema.maxItems)
    return `At most ${schema.maxItems}.`;
  return "";
}

function isConst(option) {
  return option !== null && typeof option === "object" && "const" in option;
}

function matches(pattern, text) {
  try {
    return new RegExp(pattern, "u").test(text);
  } catch {
    // A pattern that this browser cannot read is for the server to check.
    return true;
  }
}

function lookUp(reference, root) {
  if (!reference.startsWith("#/")) return {};
  const names = reference.slice(2).split("/");
  return (
    names.reduce(
      (value, name) =>
        value?.[decodeURIComponent(name).replaceAll("~1", "/").replaceAll("~0", "~")],
      root,
    ) ?? {}
  );
}
