// One MCP server: its state, its tools, its resources.

import { fill, h } from "/js/core/dom.js";
import { words } from "/js/core/format.js";
import { toolCard } from "/js/mcp/tool_card.js";
import { emptyState } from "/js/widgets/empty.js";
import { externalLink } from "/js/widgets/external_link.js";
import { jsonTree } from "/js/widgets/json_tree.js";
import { statusSign } from "/js/widgets/status.js";

const TONES = {
  connected: "good",
  starting: "active",
  failed: "bad",
  authenticationRequired: "attention",
};

const SIGN_INS = {
  unsupported: "none",
  notLoggedIn: "not signed in",
  bearerToken: "by a bearer token",
  oAuth: "signed in with OAuth",
};

/** Make the pane of a server, as `mcpServerStatus/list` has it. */
export function serverPane(app, server) {
  const tools = Object.values(server.tools).sort((a, b) => a.name.localeCompare(b.name));
  const cards = tools.map((tool) => [tool, toolCard(app.servers, server.name, tool)]);
  const filter = h("input", {
    type: "search",
    placeholder: "Filter tools",
    "aria-label": "Filter tools",
  });
  filter.addEventListener("input", () => {
    const wanted = filter.value.trim().toLowerCase();
    for (const [tool, card] of cards) {
      card.hidden = !`${tool.name} ${tool.title ?? ""} ${tool.description ?? ""}`
        .toLowerCase()
        .includes(wanted);
    }
  });
  return h(
    ".scroll.pad.stack.narrow",
    { tabindex: -1 },
    h(".row", null, h("h1.grow.nowrap", null, server.name), serverStatus(server)),
    facts(app, server),
    // The facts say why a server that failed has none.
    (tools.length > 0 || !server.toolsError) && [
      h(
        ".row",
        null,
        h("h2.heading.grow", null, `Tools (${tools.length})`),
        tools.length > 8 && filter,
      ),
      cards.length > 0
        ? h(
            ".stack.tight",
            null,
            cards.map(([, card]) => card),
          )
        : emptyState("No tools", "The server lists none."),
    ],
    resources(app, server),
  );
}

/** The state of a server, as a sign. */
export function serverStatus(server) {
  if (server.runtimeStatus)
    return statusSign(words(server.runtimeStatus), TONES[server.runtimeStatus] ?? "");
  if (server.toolsError) return statusSign("failed", "bad");
  return statusSign("reachable", "good");
}

function facts(app, server) {
  const info = server.serverInfo;
  const signIn = h("button", { type: "button" }, "Sign in …");
  const place = h("span");
  signIn.addEventListener("click", async () => {
    const url = await app.toasts.watch(
      app.servers.signIn(server.name),
      "The sign-in could not begin",
    );
    if (url !== undefined) fill(place, externalLink(url, "Go to the sign-in page"));
  });
  return h(
    "dl.facts",
    null,
    fact("Implementation", info && `${info.title ?? info.name} ${info.version}`),
    fact("Endpoint", server.httpOrigin ?? "a child process of the server"),
    fact("Sign-in", SIGN_INS[server.authStatus] ?? words(server.authStatus)),
    server.authStatus === "notLoggedIn" && fact("", h(".row", null, signIn, place)),
    fact("Problem", server.toolsError && h("span.prose", null, server.toolsError)),
    fact("Capabilities", server.serverCapabilities && jsonTree(server.serverCapabilities)),
  );
}

function resources(app, server) {
  if (server.resources.length === 0) return null;
  return h(
    ".stack.tight",
    null,
    h("h2.heading", null, `Resources (${server.resources.length})`),
    server.resources.map((resource) => {
      const content = h("div");
      const read = async () => {
        const answer = await app.toasts.watch(
          app.servers.readResource(server.name, resource.uri),
          "The resource could not be read",
        );
        if (answer !== undefined) fill(content, answer.contents.map(oneContent));
      };
      return h(
        ".stack.tight",
        null,
        h(
          ".row",
          null,
          h("code.grow.nowrap", { title: resource.uri }, resource.uri),
          h("span.muted", null, resource.mimeType),
          h("button", { type: "button", onclick: read }, "Read"),
        ),
        content,
      );
    }),
  );
}

function oneContent(content) {
  return content.text === undefined ? jsonTree(content) : h("pre", { tabindex: 0 }, content.text);
}

function fact(name, value) {
  return value ? [h("dt", null, name), h("dd", null, value)] : null;
}
