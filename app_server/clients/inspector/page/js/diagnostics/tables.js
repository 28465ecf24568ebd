// What `server/diagnostics` tells, as tables. A server that tells less has fewer of them.

import { h } from "/js/core/dom.js";
import { ago, bytes, duration, words } from "/js/core/format.js";
import { histogram } from "/js/diagnostics/histogram.js";
import { table } from "/js/widgets/table.js";

const NUMBER = "number";

/** Sections of what there is in an answer. */
export function diagnosticTables(newest, ownName) {
  return [
    connections(newest.connections, ownName),
    methods(newest.methods),
    queues(newest.queues),
    counts("MCP servers of loaded threads", newest.mcpServers, ({ status, names }) => [
      words(status),
      names.join(", "),
    ]),
    counts("Signals", newest.signals, ({ stage }) => [words(stage), ""]),
    failures(newest.failures),
    gauges(newest.gauges),
  ];
}

/** Notifications that could not be delivered, the newest first. */
export function deadLetters(entries) {
  const columns = [
    ["Receiver", ""],
    ["Event", ""],
    ["Thread", ""],
    ["Attempts", NUMBER],
    ["Given up", ""],
    ["Why", ""],
  ];
  const rows = entries.map((entry) => [
    code(entry.receiver),
    code(entry.event),
    h("a", { href: `#/threads/${entry.threadId}` }, entry.threadId),
    entry.attempts,
    ago(entry.endedAtMs / 1000),
    entry.error ?? "",
  ]);
  return entries.length > 0 && section("Dead letters of notifications", columns, rows);
}

/** How long the answers took that this page got. */
export function ownTimes(figures) {
  const columns = [
    ["Method", ""],
    ["Answers", NUMBER],
    ["p50", NUMBER],
    ["p99", NUMBER],
    ["Longest", NUMBER],
  ];
  const rows = figures.map(({ method, count, p50, p99, max }) => [
    code(method),
    count,
    ...[p50, p99, max].map(duration),
  ]);
  return section("How long this page waited for answers", columns, rows);
}

function connections(all, ownName) {
  if (!all) return null;
  const columns = [
    ["Client", ""],
    ["Version", ""],
    ["In flight", NUMBER],
    ["Waiting messages", NUMBER],
    ["Waiting text", NUMBER],
  ];
  const rows = all.map((one) => [
    h(
      "span",
      null,
      code(one.clientName ?? "no handshake yet"),
      one.clientName === ownName ? h("span.faint", null, " an inspector") : null,
    ),
    one.clientVersion ?? "",
    one.requestsInFlight,
    one.waitingMessages,
    bytes(one.waitingChars),
  ]);
  return section(`Connections (${all.length})`, columns, rows);
}

function methods(all) {
  if (!all || all.length === 0) return null;
  const columns = [
    ["Method", ""],
    ["Spread, 64 µs to 8 s", ""],
    ["Answers", NUMBER],
    ["Failed", NUMBER],
    ["p50", NUMBER],
    ["p99", NUMBER],
    ["Longest", NUMBER],
  ];
  const rows = all.map((one) => [
    code(one.method),
    histogram(one.buckets),
    one.count.toLocaleString("en"),
    one.failed,
    ...[one.p50Us, one.p99Us, one.maxUs].map((time) => duration(time / 1000)),
  ]);
  return section("How long the server took, by method", columns, rows);
}

function queues(all) {
  if (!all) return null;
  const columns = [
    ["Queue", ""],
    ["Fullest", ""],
    ["Holds", NUMBER],
    ["Bound", NUMBER],
    ["Of", NUMBER],
  ];
  const rows = all.map((one) => {
    const write = /bytes|characters/.test(one.unit) ? bytes : (value) => value.toLocaleString("en");
    const bar = one.bound === null ? null : meter(one.fullest / one.bound);
    return [
      code(one.name),
      bar,
      write(one.fullest),
      one.bound === null ? "none" : write(one.bound),
      one.owners,
    ];
  });
  return section("Queues and their bounds", columns, rows);
}

function failures(all) {
  if (!all || all.length === 0) return null;
  const columns = [
    ["Kind", ""],
    ["Of", ""],
    ["Last in", ""],
    ["Last", NUMBER],
    ["Times", NUMBER],
  ];
  const rows = all.map((one) => [
    code(one.kind),
    one.source,
    one.lastMethod ? code(one.lastMethod) : "",
    ago(one.lastAtMs / 1000),
    one.count,
  ]);
  return section("Failures since the start", columns, rows);
}

function counts(title, all, describe) {
  if (!all || all.length === 0) return null;
  const rows = all.map((one) => [...describe(one), one.count]);
  return section(
    title,
    [
      ["State", ""],
      ["Names", ""],
      ["Number", NUMBER],
    ],
    rows,
  );
}

function gauges(all) {
  const rows = all.map(({ name, value }) => [
    code(name),
    name.endsWith("_bytes") ? bytes(value) : value.toLocaleString("en"),
  ]);
  return section(
    "Gauges",
    [
      ["Gauge", ""],
      ["Now", NUMBER],
    ],
    rows,
  );
}

function meter(part) {
  const percent = Math.min(100, part * 100);
  const text = percent > 0 && percent < 1 ? "under 1 %" : `${Math.round(percent)} %`;
  return h(
    ".row",
    null,
    h("progress", { max: 100, value: percent, "aria-label": "fullest" }),
    h("span.faint", null, text),
  );
}

function section(title, columns, rows) {
  return h("section.stack.tight", null, h("h2.heading", null, title), table(title, columns, rows));
}

function code(text) {
  return h("code", null, text);
}
