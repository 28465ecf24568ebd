// The view of the server's process: what it is, what it uses, how fast it answers.

import { fill, h, onFrame } from "/js/core/dom.js";
import { bytes, duration } from "/js/core/format.js";
import { plotCard } from "/js/diagnostics/plot.js";
import { emptyState } from "/js/widgets/empty.js";

// The gauges that have a plot; all of them are in the table.
const PLOTS = [
  ["app.connections", "Connections"],
  ["core.threads.live", "Threads loaded"],
  ["core.turns.running", "Turns running"],
  ["app.questions.open", "Questions open"],
];

export function serverView(app) {
  const { connection, diagnostics, timings } = app;
  const plots = h(".cards");
  const facts = h("div");
  const gauges = h("div");
  const latency = h("div");
  const draw = onFrame(() => {
    if (diagnostics.newest === null) {
      fill(plots, emptyState("No figures yet", diagnostics.problem || "They come as soon as the server is connected."));
    } else {
      fill(
        plots,
        plotCard("Memory", diagnostics.series("memory"), bytes),
        plotCard("Round trip from this page", diagnostics.series("round trip"), duration),
        PLOTS.map(([name, title]) => plotCard(title, diagnostics.series(name), String)),
      );
      fill(gauges, gaugeTable(diagnostics));
    }
    fill(facts, serverFacts(connection, diagnostics));
    fill(latency, latencyTable(timings.figures()));
  });
  const off = [diagnostics.on("changed", draw), connection.on("status", draw)];
  draw();
  return {
    title: "Server",
    element: h(
      ".view",
      null,
      h(".bar", null, h("h1", null, "Server")),
      h(
        ".scroll.pad.stack",
        { tabindex: 0, role: "region", "aria-label": "Figures of the server" },
        facts,
        plots,
        h("h3", null, "How long this page waited for answers"),
        latency,
        h("h3", null, "Figures that the server keeps"),
        gauges,
      ),
    ),
    close: () => off.forEach((end) => end()),
  };
}

function serverFacts({ server }, { newest }) {
  if (server === null) return null;
  return h(
    "dl.facts",
    null,
    [
      ["Program", server.userAgent],
      ["Home", server.codexHome],
      ["System", server.platformOs],
      ["Process", newest?.process.id],
    ].map(([name, value]) => value && [h("dt", null, name), h("dd", null, h("code", null, String(value)))]),
  );
}

function latencyTable(figures) {
  return table(
    ["Method", "Answers", "p50", "p99", "Longest"],
    figures.map(({ method, count, p50, p99, max }) => [method, count, duration(p50), duration(p99), duration(max)]),
  );
}

function gaugeTable(diagnostics) {
  const rows = diagnostics.newest.gauges.map(({ name, value }) => [
    name,
    name.endsWith("_bytes") ? bytes(value) : value.toLocaleString("en"),
    Math.max(...diagnostics.series(name)).toLocaleString("en"),
  ]);
  return table(["Figure", "Now", "Highest here"], rows);
}

function table(names, rows) {
  const cell = (tag, index) => (index === 0 ? tag : `${tag}.number`);
  return h(
    "table",
    null,
    h("thead", null, h("tr", null, names.map((name, index) => h(cell("th", index), { scope: "col" }, name)))),
    h(
      "tbody",
      null,
      rows.map((row) => h("tr", null, row.map((value, index) => h(cell("td", index), null, index === 0 ? h("code", null, value) : value)))),
    ),
  );
}
