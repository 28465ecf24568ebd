// Elements out of values. Text is always text: nothing here, or elsewhere, makes HTML from strings.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an element: h("button.primary", {onclick, disabled, "aria-label": …}, children…).
 *
 * Names that begin with "on" are listeners, `dataset` takes an object; attributes with null,
 * undefined or false are left out (but "aria-…" keep false), true is an empty one. Children are
 * nodes, texts, or lists of them; null, false and "" are left out.
 */
export function h(tag, attributes, ...children) {
  const [name, ...classes] = tag.split(".");
  const element = document.createElement(name || "div");
  if (classes.length > 0) element.className = classes.join(" ");
  setAttributes(element, attributes);
  element.append(...nodes(children));
  // A list of choices has its value once it has its choices.
  if (attributes?.value !== undefined && attributes.value !== null)
    element.value = attributes.value;
  return element;
}

/** Make an element of SVG. */
export function svg(name, attributes, ...children) {
  const element = document.createElementNS(SVG, name);
  setAttributes(element, attributes);
  element.append(...nodes(children));
  return element;
}

/** Replace what is in an element. */
export function fill(element, ...children) {
  element.replaceChildren(...nodes(children));
  return element;
}

/**
 * Make the children of an element those of a list, in its order. An element whose key is still
 * there is kept, with its focus, and updated.
 */
export function keyed(parent, items, keyOf, create, update) {
  const old = parent.keyedChildren ?? new Map();
  const now = new Map();
  let place = parent.firstChild;
  for (const item of items) {
    const key = keyOf(item);
    const element = old.get(key) ?? create(item);
    old.delete(key);
    now.set(key, element);
    update?.(element, item);
    if (element === place) place = place.nextSibling;
    else parent.insertBefore(element, place);
  }
  for (const element of old.values()) element.remove();
  parent.keyedChildren = now;
}

/** Run a function once before the next frame, however often it is asked for. */
export function onFrame(run) {
  let waits = false;
  return () => {
    if (waits) return;
    waits = true;
    // A hidden page has no frames; its timers run.
    const begin = document.hidden ? (step) => setTimeout(step, 50) : requestAnimationFrame;
    begin(() => {
      waits = false;
      run();
    });
  };
}

function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined) continue;
    // Of these, "false" says something else than nothing.
    if (name.startsWith("aria-")) element.setAttribute(name, value);
    else if (value === false) continue;
    else if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name === "value" || name === "checked") element[name] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
}

function nodes(children) {
  return children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false && child !== "")
    .map((child) => (child instanceof Node ? child : String(child)));
}
