// The threads of the server, newest first, with what each of them does.

import { fill, h, keyed } from "/js/core/dom.js";
import { ago, oneLine } from "/js/core/format.js";
import { statusText } from "/js/threads/summary.js";
import { emptyState } from "/js/widgets/empty.js";
import { statusSign } from "/js/widgets/status.js";

export class ThreadList {
  constructor(app) {
    this.app = app;
    this.filter = h("input", {
      type: "search",
      placeholder: "Filter threads",
      "aria-label": "Filter threads",
    });
    this.list = h("nav.list", { "aria-label": "Threads" });
    this.more = h("button.plain", { type: "button" }, "Load more");
    this.none = h("div");
    this.element = h(
      "section.pane",
      { "aria-label": "Threads" },
      h(".bar", null, this.filter),
      h(".scroll", null, this.none, this.list, this.more),
    );
    this.filter.addEventListener("input", () => this.draw(this.current));
    this.more.addEventListener("click", () =>
      app.toasts.watch(app.threads.more(), "The list could not be read"),
    );
  }

  /** Draw the list; `current` is the id of the thread that is shown. */
  draw(current) {
    this.current = current;
    const { threads } = this.app;
    const wanted = this.filter.value.trim().toLowerCase();
    const all = [...threads.threads.values()];
    const shown = all.filter((thread) =>
      `${titleOf(thread)} ${thread.cwd} ${thread.id}`.toLowerCase().includes(wanted),
    );
    keyed(
      this.list,
      shown,
      (thread) => thread.id,
      createLink,
      (link, thread) => this.#fill(link, thread),
    );
    this.more.hidden = !threads.hasMore;
    fill(this.none, shown.length > 0 ? null : nothing(all.length, this.app.connection));
  }

  #fill(link, thread) {
    const isCurrent = thread.id === this.current;
    if (isCurrent) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
    const isOpen = this.app.threads.open.has(thread.id);
    fill(
      link,
      h("span.title", null, h("span.nowrap", null, titleOf(thread)), threadStatus(thread)),
      h(
        "span.sub",
        null,
        h("span.nowrap", { title: thread.cwd }, lastFolder(thread.cwd)),
        h("span", null, isOpen ? "listening · " : "", ago(thread.recencyAt ?? thread.updatedAt)),
      ),
    );
  }
}

/** A name for a thread: the one it was given, what was said first, or that nothing was. */
export function titleOf(thread) {
  const said = oneLine(thread.preview ?? "", 80);
  return thread.name || said || (thread.ephemeral ? "Thread in memory" : "Empty thread");
}

/** What a thread does, as a sign. */
export function threadStatus(thread) {
  const { status } = thread;
  const waits = status?.type === "active" && status.activeFlags.length > 0;
  const tones = { active: waits ? "attention" : "active", systemError: "bad", idle: "good" };
  return statusSign(statusText(status), tones[status?.type] ?? "");
}

function createLink(thread) {
  return h("a", { href: `#/threads/${thread.id}` });
}

function lastFolder(path) {
  return path?.split("/").filter(Boolean).at(-1) ?? "/";
}

function nothing(count, connection) {
  if (count > 0) return emptyState("Nothing matches", "Change the filter to see other threads.");
  if (!connection.isReady) {
    return emptyState(
      "No server yet",
      `${connection.status.reason} Start one with “app-server --listen ws://127.0.0.1:4500”; this page connects by itself.`,
    );
  }
  return emptyState(
    "No threads yet",
    "Start one with “New thread”, or with any client of this server: it appears here at once.",
  );
}
