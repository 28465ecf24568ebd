// The values of a figure over a day, finer the newer they are: for each window as many points.

export const WINDOWS = [
  { name: "5 min", ms: 5 * 60_000 },
  { name: "1 h", ms: 60 * 60_000 },
  { name: "24 h", ms: 24 * 60 * 60_000 },
];

/** Points of each window. */
export const POINTS = 150;

export class Series {
  // For each window its points {at, value}, oldest first; of several values in the time of one the highest is kept.
  #windows = WINDOWS.map(() => []);

  add(at, value) {
    WINDOWS.forEach(({ ms }, index) => {
      const points = this.#windows[index];
      const step = ms / POINTS;
      const slot = Math.floor(at / step);
      const last = points.at(-1);
      if (last?.slot === slot) Object.assign(last, { at, value: Math.max(last.value, value) });
      else points.push({ slot, at, value });
      while (points[0].at < at - ms) points.shift();
    });
    this.newest = value;
  }

  /** The points of a window, oldest first. */
  points(index) {
    return this.#windows[index];
  }
}
