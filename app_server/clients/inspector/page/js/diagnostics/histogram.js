// How the times of a method are spread, as bars; each bar is twice as long a time as the one before.

import { svg } from "/js/core/dom.js";

const FIRST_US = 64;
const BARS = 18;
const WIDTH = 90;
const HEIGHT = 18;

/** `buckets` are those of `server/diagnostics`: {upToUs, count}, without empty ones. */
export function histogram(buckets) {
  const bars = Array.from({ length: BARS }, () => 0);
  for (const { upToUs, count } of buckets) {
    const place = Math.ceil(Math.log2(Math.max(1, upToUs / FIRST_US)));
    bars[Math.min(BARS - 1, place)] += count;
  }
  const highest = Math.max(...bars, 1);
  const width = WIDTH / BARS;
  return svg(
    "svg",
    { class: "histogram", width: WIDTH, height: HEIGHT, "aria-hidden": "true" },
    svg("line", { class: "axis", x1: 0, x2: WIDTH, y1: HEIGHT - 0.5, y2: HEIGHT - 0.5 }),
    bars.map((count, index) => {
      const height = count === 0 ? 0 : Math.max(1.5, (count / highest) * (HEIGHT - 1));
      return svg("rect", { x: index * width, y: HEIGHT - height, width: width - 1, height });
    }),
  );
}
