// Values as people read them.

/** 0.3 ms, 12 ms, 1.20 s, 2 min 5 s. */
export function duration(ms) {
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(2)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

/** 512 B, 1.2 kB, 34 MB. */
export function bytes(count) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let value = count;
  let unit = 0;
  while (value >= 1000 && unit < units.length - 1) {
    value /= 1000;
    unit += 1;
  }
  const digits = unit === 0 || value >= 100 ? 0 : 1;
  return `${value.toFixed(digits)} ${units[unit]}`;
}

/** The time of day with milliseconds. */
export function clock(ms) {
  const date = new Date(ms);
  const two = (number) => String(number).padStart(2, "0");
  const time = [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":");
  return `${time}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

/** How long ago a time in Unix seconds was. */
export function ago(seconds, now = Date.now()) {
  const past = Math.max(0, Math.round(now / 1000 - seconds));
  if (past < 60) return "now";
  if (past < 3600) return `${Math.floor(past / 60)} min`;
  if (past < 86_400) return `${Math.floor(past / 3600)} h`;
  return `${Math.floor(past / 86_400)} d`;
}

/** One line of at most some characters. */
export function oneLine(text, most = 240) {
  const line = text
    .slice(0, most * 2)
    .replaceAll(/\s+/g, " ")
    .trim();
  return line.length > most ? `${line.slice(0, most - 1)}…` : line;
}

/** "mcpServer/tool/call" stays; "inProgress" becomes "in progress". */
export function words(name) {
  return name.replaceAll(/([a-z])([A-Z])/g, (_, left, right) => `${left} ${right.toLowerCase()}`);
}

/** The last part of an id, which tells ids of one time apart. */
export function shortId(id) {
  return id.length > 12 ? `…${id.slice(-8)}` : id;
}
