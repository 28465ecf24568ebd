// How long ago something was, kept true while it is shown.

import { h } from "/js/core/dom.js";
import { clock, duration } from "/js/core/format.js";

/** `at` in Unix milliseconds; `isExact` is false if it was at least that long ago. */
export function age(at, isExact = true) {
  const element = h("time", {
    datetime: new Date(at).toISOString(),
    title: clock(at),
    dataset: { since: at, exact: isExact },
  });
  draw(element);
  return element;
}

function draw(element) {
  const seconds = Math.max(0, Math.floor((Date.now() - Number(element.dataset.since)) / 1000));
  const long = seconds < 60 ? `${seconds} s` : duration(seconds * 1000);
  const words = element.dataset.exact === "true" ? "" : "at least ";
  element.textContent = `${words}${long} ago`;
}

setInterval(() => document.querySelectorAll("time[data-since]").forEach(draw), 1000);
