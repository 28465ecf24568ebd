// A plot of a figure over a window of time, with its axes.

import { h, svg } from "/js/core/dom.js";
import { clock } from "/js/core/format.js";
import { POINTS, WINDOWS } from "/js/diagnostics/series.js";

const WIDTH = 240;
const HEIGHT = 56;
/** So many points may be missing before the line is broken: the page was not running. */
const GAP = 5;

/** Make a card: a name, the newest value, and a line; `format` writes a value, `index` names the window. */
export function plotCard(name, series, format, index, now = Date.now()) {
  const points = series?.points(index) ?? [];
  const values = points.map(({ value }) => value);
  const highest = Math.max(...values, 0);
  const text = series === undefined ? "–" : format(series.newest);
  const range = values.length > 1 ? `${format(Math.min(...values))} to ${format(highest)}` : "";
  const { ms } = WINDOWS[index];
  return h(
    ".card",
    { role: "group", "aria-label": name },
    h("h2.heading", null, name),
    h(".row", null, h("span.figure.grow", null, text), h("span.faint", null, range)),
    plot(points, highest, now, ms, format),
    h(
      ".row.faint.axis",
      { "aria-hidden": "true" },
      h("span.grow", null, timeOf(now - ms)),
      h("span.grow", null, timeOf(now - ms / 2)),
      h("span", null, timeOf(now)),
    ),
  );
}

function timeOf(at) {
  return clock(at).slice(0, 5);
}

function plot(points, highest, now, ms, format) {
  const top = highest || 1;
  const x = (at) => (WIDTH * (1 - (now - at) / ms)).toFixed(1);
  const y = (value) => (HEIGHT - (value / top) * (HEIGHT - 4)).toFixed(1);
  const lines = runs(points, (GAP * ms) / POINTS).map((run) =>
    run.map(({ at, value }) => `${x(at)},${y(value)}`),
  );
  const parts = lines.flatMap((line) => [
    svg("polygon", {
      class: "area",
      points: `${line[0].split(",")[0]},${HEIGHT} ${line.join(" ")} ${line.at(-1).split(",")[0]},${HEIGHT}`,
    }),
    svg("polyline", { class: "line", points: line.join(" ") }),
  ]);
  const drawn = svg(
    "svg",
    {
      class: "plot",
      viewBox: `0 0 ${WIDTH} ${HEIGHT}`,
      preserveAspectRatio: "none",
      "aria-hidden": "true",
    },
    svg("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT, y2: HEIGHT }),
    parts,
  );
  // What is under the pointer: its time and value.
  drawn.addEventListener("pointermove", ({ offsetX }) => {
    const at = now - ms * (1 - offsetX / drawn.clientWidth);
    const near = points.toSorted((a, b) => Math.abs(a.at - at) - Math.abs(b.at - at))[0];
    if (near) drawn.parentElement.title = `${clock(near.at).slice(0, 8)}: ${format(near.value)}`;
  });
  return drawn;
}

// Points that follow each other without a gap; a single one makes no line.
function runs(points, gap) {
  const all = [];
  for (const point of points) {
    const run = all.at(-1);
    if (run !== undefined && point.at - run.at(-1).at <= gap) run.push(point);
    else all.push([point]);
  }
  return all.filter((run) => run.length > 1);
}
