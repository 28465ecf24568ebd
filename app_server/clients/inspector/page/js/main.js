// Joins the parts of the page: one connection, the stores that listen to it, and the view that the
// address names.

import { Connection } from "/js/core/connection.js";
import { fill, h } from "/js/core/dom.js";
import { Timings } from "/js/core/timings.js";
import { takeToken } from "/js/core/token.js";
import { WireLog } from "/js/core/wire_log.js";
import { Diagnostics } from "/js/diagnostics/poller.js";
import { McpServerStore } from "/js/mcp/server_store.js";
import { announceQuestions } from "/js/requests/announce.js";
import { QuestionStore } from "/js/requests/question_store.js";
import { WaitingThreads } from "/js/requests/waiting.js";
import { listenToKeys } from "/js/shell/keys.js";
import { Navigation } from "/js/shell/navigation.js";
import { applyTheme } from "/js/shell/theme.js";
import { SignalStore } from "/js/signals/signal_store.js";
import { ThreadStore } from "/js/threads/thread_store.js";
import { appsView } from "/js/views/apps.js";
import { mcpView } from "/js/views/mcp.js";
import { requestsView } from "/js/views/requests.js";
import { serverView } from "/js/views/server.js";
import { signalsView } from "/js/views/signals.js";
import { threadsView } from "/js/views/threads.js";
import { wireView } from "/js/views/wire.js";
import { Toasts } from "/js/widgets/toasts.js";

/**
 * `show` makes a view; `parts` are what stands behind its name in the address. A view that has `move` goes on with
 * other parts, instead of being made anew.
 *
 * @typedef {{element: HTMLElement, close: () => void, move?: (parts: any) => void}} View
 * @type {{name: string, title: string, key: string, show: (app: any, parts: any) => View}[]}
 */
const VIEWS = [
  { name: "threads", title: "Threads", key: "1", show: threadsView },
  { name: "requests", title: "Requests", key: "2", show: requestsView },
  { name: "mcp", title: "MCP servers", key: "3", show: mcpView },
  { name: "apps", title: "Apps", key: "4", show: appsView },
  { name: "signals", title: "Signals", key: "5", show: signalsView },
  { name: "server", title: "Server", key: "6", show: serverView },
  { name: "wire", title: "Wire", key: "7", show: wireView },
];

function begin() {
  applyTheme();
  const log = new WireLog();
  const timings = new Timings();
  const connection = new Connection(takeToken(), log, timings);
  const questions = new QuestionStore(connection);
  const threads = new ThreadStore(connection, questions);
  const app = {
    log,
    timings,
    connection,
    threads,
    questions,
    waiting: new WaitingThreads(connection, threads),
    servers: new McpServerStore(connection, threads),
    signals: new SignalStore(connection),
    diagnostics: new Diagnostics(connection),
    toasts: new Toasts(),
    go: (address) => (location.hash = address),
  };
  announceQuestions(app);
  const showKeys = listenToKeys(VIEWS, app.go);
  const navigation = new Navigation(app, VIEWS, showKeys);
  const main = h("main", { tabindex: -1 });
  fill(document.body, h(".frame", null, navigation.element, main), app.toasts.element);

  let shown = null;
  let current = null;
  const show = () => {
    const [, name = "", ...rest] = location.hash.split("/");
    const view = VIEWS.find((one) => one.name === name) ?? VIEWS[0];
    const parts = rest.map(decoded);
    if (view === current && shown.move !== undefined) shown.move(parts);
    else {
      shown?.close();
      shown = view.show(app, parts);
      fill(main, shown.element);
      current = view;
    }
    navigation.mark(view.name);
  };
  addEventListener("hashchange", show);
  show();
  connection.open();
}

// An address that somebody typed may have a % that means nothing.
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

begin();
