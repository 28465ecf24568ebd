// Views as functions of values: Preact, with templates that htm reads. Preact makes elements and texts, never HTML from
// strings, and a view that is rendered again keeps its elements, with their focus and what was opened in them.

import * as preact from "/vendor/preact.js";
import htm from "/vendor/htm.js";

/** A view that has a state of its own. */
export const Component = preact.Component;

/** html`<p class=${look}>${text}</p>`: a description, for `render` and `element`. */
export const html = htm.bind(preact.h);

/** Show a description in an element, in the place of the one before. */
export const render = preact.render;

/** Make one element of a description, for code that works with elements. */
export function element(description) {
  const place = document.createElement("div");
  render(description, place);
  return place.firstElementChild;
}
