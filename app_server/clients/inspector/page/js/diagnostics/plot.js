// A small plot of the last values of a figure.

import { h, svg } from "/js/core/dom.js";

const WIDTH = 240;
const HEIGHT = 56;

/** Make a card: a name, the newest value, and a line of all; `format` writes a value. */
export function plotCard(name, values, format) {
  const newest = values.at(-1);
  const highest = Math.max(...values, 0);
  const text = newest === undefined ? "–" : format(newest);
  const range = values.length > 1 ? `${format(Math.min(...values))} to ${format(highest)}` : "";
  return h(
    ".card",
    { role: "group", "aria-label": name },
    h("h3", null, name),
    h(".row", null, h("span.figure.grow", null, text), h("span.faint", null, range)),
    line(values, highest),
  );
}

function line(values, highest) {
  const step = WIDTH / Math.max(1, values.length - 1);
  const top = highest || 1;
  const points = values.map(
    (value, index) =>
      `${(index * step).toFixed(1)},${(HEIGHT - (value / top) * (HEIGHT - 4)).toFixed(1)}`,
  );
  const area = `0,${HEIGHT} ${points.join(" ")} ${WIDTH},${HEIGHT}`;
  return svg(
    "svg",
    {
      class: "plot",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      "aria-hidden": "true",
    },
    svg("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }),
    values.length > 1 && svg("polygon", { class: "area", points: area }),
    values.length > 1 && svg("polyline", { class: "line", points: points.join(" ") }),
  );
}
