// One message as a row of a timeline.

import { h } from "/js/core/dom.js";
import { bytes, clock, duration, oneLine } from "/js/core/format.js";
import { itemText, messageSummary } from "/js/threads/summary.js";

const PARTS = ["time", "direction", "method", "summary", "note", "size"];

/** Make an empty row. */
export function createRow() {
  const row = h(".message", { role: "option" }, ...PARTS.map((part) => h(`span.${part}`)));
  row.parts = Object.fromEntries(PARTS.map((part, index) => [part, row.children[index]]));
  return row;
}

/** Fill a row, which may have shown another message before. */
export function drawRow(element, row) {
  const shown = row.kind === "item" ? itemParts(row) : messageParts(row);
  element.className = `message ${shown.look}`;
  for (const part of PARTS) {
    if (element.parts[part].textContent !== shown[part])
      element.parts[part].textContent = shown[part];
  }
}

function itemParts({ item }) {
  return {
    look: "history",
    time: item.startedAtMs ? clock(item.startedAtMs) : "",
    direction: "·",
    method: item.type,
    summary: oneLine(itemText(item)),
    note: "before",
    size: "",
  };
}

function messageParts({ entry, count, text, size }) {
  return {
    look: lookOf(entry),
    time: clock(entry.at),
    direction: directionOf(entry),
    method: nameOf(entry),
    summary: count > 1 ? oneLine(text) : messageSummary(entry),
    note: count > 1 ? `×${count}` : entry.durationMs === null ? "" : duration(entry.durationMs),
    size: bytes(size),
  };
}

function nameOf(entry) {
  if (entry.kind !== "answer") return entry.method;
  return `${entry.method} ${entry.message.error === undefined ? "✓" : "✗"}`;
}

function lookOf(entry) {
  if (entry.message.error !== undefined || entry.method === "error") return "failed";
  if (entry.direction === "out") return "sent";
  if (entry.kind === "request") return "asked";
  return /^turn\/(started|completed)$/.test(entry.method) ? "turn" : "";
}

/** An arrow, and a question mark for what the server asks. */
export function directionOf(entry) {
  if (entry.kind === "request" && entry.direction === "in") return "?";
  return entry.direction === "out" ? "→" : "←";
}
