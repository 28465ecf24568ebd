// A JSON value as a tree that is opened level by level: what is closed has no elements.

import { h } from "/js/core/dom.js";

const OPEN_LEVELS = 4;
const MAX_CHILDREN = 500;
const MAX_STRING = 4000;

/** Make a tree; objects and arrays of the first levels are open unless they are long. */
export function jsonTree(value) {
  return h(".json", null, branch(null, value, 0));
}

function branch(key, value, level) {
  if (value === null || typeof value !== "object") return leaf(key, value);
  const isArray = Array.isArray(value);
  const entries = Object.entries(value);
  if (entries.length === 0) return line(key, h("span.word", null, isArray ? "[]" : "{}"));
  const size = isArray ? `[${entries.length}]` : `{${entries.length}}`;
  const inside = h("div");
  const tree = h(
    "details",
    null,
    h("summary", null, label(key), h("span.more", null, size)),
    inside,
  );
  let filled = false;
  const open = () => {
    if (filled || !tree.open) return;
    filled = true;
    inside.append(
      ...entries.slice(0, MAX_CHILDREN).map(([name, child]) => branch(name, child, level + 1)),
    );
    if (entries.length > MAX_CHILDREN) {
      inside.append(h(".leaf.more", null, `and ${entries.length - MAX_CHILDREN} more`));
    }
  };
  tree.addEventListener("toggle", open);
  tree.open = level < OPEN_LEVELS && entries.length <= 50;
  open();
  return tree;
}

function leaf(key, value) {
  if (typeof value === "string") {
    const element = h("span.string", null, JSON.stringify(value.slice(0, MAX_STRING)));
    const rest = value.length - MAX_STRING;
    return line(key, element, rest > 0 && h("span.more", null, ` and ${rest} more characters`));
  }
  return line(key, h(typeof value === "number" ? "span.number" : "span.word", null, String(value)));
}

function line(key, ...parts) {
  return h(".leaf", null, label(key), parts);
}

function label(key) {
  return key === null ? null : h("span.key", null, `${key}: `);
}
