// The view of the server's process: what it is, what it uses, who is connected, how fast it answers.

import { fill, h, onFrame } from "/js/core/dom.js";
import { CLIENT_NAME } from "/js/core/connection.js";
import { bytes, duration } from "/js/core/format.js";
import { plotCard } from "/js/diagnostics/plot.js";
import { WINDOWS } from "/js/diagnostics/series.js";
import { deadLetters, diagnosticTables, ownTimes } from "/js/diagnostics/tables.js";
import { emptyState } from "/js/widgets/empty.js";

// The gauges that have a plot.
const PLOTS = [
  ["app.connections", "Connections"],
  ["core.threads.live", "Threads loaded"],
  ["core.turns.running", "Turns running"],
  ["app.questions.open", "Questions open"],
];

// Dead letters of notifications that are listed, the newest.
const LETTERS = 20;

export function serverView(app) {
  const { connection, diagnostics, timings } = app;
  const facts = h("div");
  const plots = h(".cards");
  const tables = h(".stack");
  const letters = h("div");
  let listed = 0;
  let range = 0;
  const ranges = WINDOWS.map(({ name }, index) =>
    h(
      "button",
      { type: "button", "aria-pressed": index === range, onclick: () => show(index) },
      name,
    ),
  );
  const show = (index) => {
    range = index;
    ranges.forEach((button, other) => button.setAttribute("aria-pressed", other === range));
    draw();
  };
  // Only where there are some: other servers have no such list.
  const listDead = async () => {
    const count = diagnostics.series("notifications.dead")?.newest ?? 0;
    if (count === listed) return;
    listed = count;
    const page = { data: [] };
    if (count > 0) {
      Object.assign(
        page,
        await connection.call("notification/list", { state: "dead", limit: LETTERS }),
      );
    }
    fill(letters, deadLetters(page.data));
  };
  const draw = onFrame(() => {
    const { newest } = diagnostics;
    fill(facts, connection.server && serverFacts(connection.server, newest));
    if (newest === null) {
      fill(
        plots,
        emptyState(
          "No figures yet",
          diagnostics.problem || "They come as soon as the server is connected.",
        ),
      );
      return;
    }
    fill(
      plots,
      plotCard("Memory", diagnostics.series("memory"), bytes, range),
      plotCard("Round trip from this page", diagnostics.series("round trip"), duration, range),
      // Other servers have other gauges.
      PLOTS.filter(([name]) => diagnostics.series(name) !== undefined).map(([name, title]) =>
        plotCard(title, diagnostics.series(name), String, range),
      ),
    );
    fill(tables, diagnosticTables(newest, CLIENT_NAME), ownTimes(timings.figures()));
    listDead().catch(() => (listed = 0));
  });
  const off = [diagnostics.on("changed", draw), connection.on("status", draw)];
  draw();
  return {
    element: h(
      ".view",
      null,
      h(
        ".bar",
        null,
        h("h1.grow", null, "Server"),
        h(".row", { role: "group", "aria-label": "Window of the plots" }, ranges),
      ),
      h(
        ".scroll.pad.stack",
        { tabindex: 0, role: "region", "aria-label": "Figures of the server" },
        facts,
        plots,
        letters,
        tables,
      ),
    ),
    close: () => off.forEach((end) => end()),
  };
}

function serverFacts(server, newest) {
  const about = newest?.server;
  return h(
    "dl.facts",
    null,
    [
      ["Program", server.userAgent],
      ["Version", about && `${about.version}, speaks ${about.protocolVersion}`],
      ["Runs for", about && duration(about.uptimeMs)],
      ["Home", server.codexHome],
      ["Process", newest?.process.id],
    ].map(
      ([name, value]) =>
        value && [h("dt", null, name), h("dd", null, h("code", null, String(value)))],
    ),
  );
}
