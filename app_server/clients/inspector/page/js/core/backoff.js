// How long to wait before the next try to connect: 0.25 s, then twice as long each time, up to 4 s.

const FIRST_MS = 250;
const LONGEST_MS = 4000;

export function backoffMs(failures) {
  return Math.min(LONGEST_MS, FIRST_MS * 2 ** Math.max(0, failures - 1));
}
