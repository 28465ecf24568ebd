// The view of MCP servers: the list, and the server that is chosen.

import { fill, h, keyed, onFrame } from "/js/core/dom.js";
import { serverPane, serverStatus } from "/js/mcp/server_pane.js";
import { titleOf } from "/js/threads/thread_list.js";
import { emptyState } from "/js/widgets/empty.js";

export function mcpView(app, [chosen]) {
  const { servers, threads, connection, toasts } = app;
  const list = h("nav.list", { "aria-label": "MCP servers" });
  const none = h("div");
  const place = h("section.pane", { "aria-label": "MCP server" });
  const through = h("select", { id: "mcp-thread" });
  const again = h("button", { type: "button" }, "Refresh");
  let shown = null;

  const draw = onFrame(() => {
    drawThreads();
    const all = servers.servers ?? [];
    keyed(list, all, ({ name }) => name, createLink, fillLink);
    fill(none, all.length === 0 && nothing(servers.servers !== null));
    const server = all.find(({ name }) => name === chosen) ?? all[0];
    if (server === shown) return;
    shown = server ?? null;
    fill(place, server && serverPane(app, server));
  });
  const drawThreads = () => {
    const options = [["", "a new one, in memory only"]];
    for (const id of threads.open.keys()) {
      const thread = threads.threads.get(id);
      if (thread !== undefined) options.push([id, titleOf(thread)]);
    }
    keyed(
      through,
      options,
      ([id]) => id,
      ([id]) => h("option", { value: id }),
      (option, [, title]) => (option.textContent = title),
    );
    through.value = servers.threadId;
  };
  const fillLink = (link, server) => {
    if (server.name === (chosen ?? servers.servers[0]?.name))
      link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
    const count = Object.keys(server.tools).length;
    fill(
      link,
      h("span.title", null, h("span.nowrap", null, server.name), serverStatus(server)),
      h("span.sub", null, h("span.nowrap", null, server.httpOrigin ?? "stdio"), `${count} tools`),
    );
  };
  const refresh = async () => {
    if (!connection.isReady) return;
    again.disabled = true;
    await toasts.watch(servers.refresh(), "The MCP servers could not be listed");
    again.disabled = false;
  };
  through.addEventListener("change", () =>
    toasts.watch(servers.choose(through.value), "The MCP servers could not be listed"),
  );
  again.addEventListener("click", refresh);

  const off = [
    servers.on("changed", draw),
    threads.on("changed", draw),
    connection.on("ready", refresh),
  ];
  draw();
  if (servers.servers === null) refresh();
  return {
    element: h(
      ".view",
      null,
      h(
        ".bar",
        null,
        h("h1.grow", null, "MCP servers"),
        h(
          ".row",
          null,
          h("label.muted", { for: "mcp-thread" }, "Connections of thread"),
          h("div", null, through),
        ),
        again,
      ),
      h(".panes.two", null, h("section.pane", null, h(".scroll", null, none, list)), place),
    ),
    close: () => off.forEach((end) => end()),
  };
}

function createLink(server) {
  return h("a", { href: `#/mcp/${encodeURIComponent(server.name)}` });
}

function nothing(listed) {
  if (!listed)
    return emptyState(
      "Listing …",
      "Each server is asked for its tools. One that does not start takes until its timeout.",
    );
  return emptyState(
    "No MCP servers",
    "Add one to config.toml, for example with “app-server mcp add files -- my-mcp-server”, and refresh.",
  );
}
