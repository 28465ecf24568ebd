// The view of apps: what exists for the account, and what each app can do.

import { fill, h, keyed, onFrame } from "/js/core/dom.js";
import { emptyState } from "/js/widgets/empty.js";
import { externalLink } from "/js/widgets/external_link.js";
import { jsonTree } from "/js/widgets/json_tree.js";
import { statusSign } from "/js/widgets/status.js";

const PAGE = 100;
const MAX_PAGES = 20;

export function appsView(app, [chosen]) {
  const { connection, toasts } = app;
  const filter = h("input", {
    type: "search",
    placeholder: "Filter apps",
    "aria-label": "Filter apps",
  });
  const list = h("nav.list", { "aria-label": "Apps" });
  const none = h("div");
  const place = h("section.pane", { "aria-label": "App" });
  const again = h("button", { type: "button" }, "Fetch again");
  let all = null;

  const draw = onFrame(() => {
    const wanted = filter.value.trim().toLowerCase();
    const shown = (all ?? []).filter(({ name, id }) =>
      `${name} ${id}`.toLowerCase().includes(wanted),
    );
    keyed(list, shown, ({ id }) => id, createLink, fillLink);
    fill(none, shown.length === 0 && nothing(all));
  });
  const fillLink = (link, info) => {
    if (info.id === chosen) link.setAttribute("aria-current", "true");
    fill(
      link,
      h("span.title", null, h("span.nowrap", null, info.name), appStatus(info)),
      h("span.sub", null, h("span.nowrap", null, info.description ?? "")),
    );
  };
  const refresh = async (forceRefetch = false) => {
    if (!connection.isReady) return;
    again.disabled = true;
    const found = await toasts.watch(
      listAll(connection, forceRefetch),
      "The apps could not be listed",
    );
    again.disabled = false;
    all = found ?? all ?? [];
    draw();
    if (chosen !== undefined) await show();
  };
  const show = async () => {
    const answer = await toasts.watch(
      connection.call("app/read", { appIds: [chosen], includeTools: true }),
      "The app could not be read",
    );
    const info = all.find(({ id }) => id === chosen);
    if (answer !== undefined && info !== undefined) fill(place, appPane(info, answer.apps[0]));
  };
  filter.addEventListener("input", draw);
  again.addEventListener("click", () => refresh(true));
  const off = [
    connection.on("ready", () => refresh()),
    connection.on("notification", ({ method, params }) => {
      if (method !== "app/list/updated") return;
      all = params.data;
      draw();
    }),
  ];
  draw();
  refresh();
  return {
    element: h(
      ".view",
      null,
      h(".bar", null, h("h1.grow", null, "Apps"), filter, again),
      h(".panes.two", null, h("section.pane", null, h(".scroll", null, none, list)), place),
    ),
    close: () => off.forEach((end) => end()),
  };
}

async function listAll(connection, forceRefetch) {
  const found = [];
  let cursor = null;
  for (let page = 0; page < MAX_PAGES; page++) {
    const answer = await connection.call("app/list", {
      limit: PAGE,
      cursor,
      forceRefetch: forceRefetch && page === 0,
    });
    found.push(...answer.data);
    cursor = answer.nextCursor;
    if (cursor === null) break;
  }
  return found;
}

function createLink(info) {
  return h("a", { href: `#/apps/${encodeURIComponent(info.id)}` });
}

function appStatus(info) {
  if (!info.isEnabled) return statusSign("switched off", "attention");
  return info.isAccessible ? statusSign("connected", "good") : statusSign("not connected");
}

function appPane(info, details) {
  const tools = details?.toolSummaries ?? [];
  return h(
    ".scroll.pad.stack",
    { tabindex: -1 },
    h(".row", null, h("h1.grow.nowrap", null, info.name), appStatus(info)),
    info.description && h("p.prose", null, info.description),
    h("code.muted", null, info.id),
    info.installUrl && h("p", null, externalLink(info.installUrl, "Connect or manage it")),
    h("h2.heading", null, `Tools (${tools.length})`),
    h(
      ".stack.tight",
      null,
      tools.map((tool) =>
        h(
          ".row",
          null,
          h("code", null, tool.name),
          h("span.muted.nowrap.grow", null, tool.title ?? tool.description),
          tool.isReadOnly && h("span.tag", null, "read-only"),
          tool.isEnabled ? null : statusSign(tool.disabledReason ?? "switched off", "attention"),
        ),
      ),
    ),
    h("details", null, h("summary.muted", null, "As the server lists it"), jsonTree(info)),
  );
}

function nothing(all) {
  if (all === null) return emptyState("Listing …", "The server asks its directory of apps.");
  if (all.length > 0) return emptyState("Nothing matches", "Change the filter to see other apps.");
  return emptyState(
    "No apps",
    "Apps need an account with ChatGPT that is signed in. “app-server demo --apps” shows them without one.",
  );
}
