// The threads of the server, newest first, with what each of them does.

import { fill, h, keyed } from "/js/core/dom.js";
import { ago, oneLine } from "/js/core/format.js";
import { statusText } from "/js/threads/summary.js";
import { emptyState } from "/js/widgets/empty.js";
import { statusSign } from "/js/widgets/status.js";

const TYPING_MS = 200;

export class ThreadList {
  constructor(app) {
    this.app = app;
    this.filter = h("input", {
      type: "search",
      placeholder: "Search threads",
      "aria-label": "Search threads",
      dataset: { filter: "" },
    });
    this.archived = h("input", { type: "checkbox" });
    this.project = h("select", { "aria-label": "Project", hidden: true });
    /** What the server found; null while its newest threads are shown. */
    this.found = null;
    this.problem = "";
    this.list = h("nav.list", { "aria-label": "Threads" });
    this.more = h("button.plain", { type: "button" }, "Load more");
    this.none = h("div");
    this.element = h(
      "section.pane",
      { "aria-label": "Threads" },
      h(".bar", null, this.filter),
      h(".bar", null, this.project, h("label.check", null, this.archived, "Archived")),
      h(".scroll", null, this.none, this.list, this.more),
    );
    this.filter.addEventListener("input", () => {
      clearTimeout(this.typing);
      this.typing = setTimeout(() => this.#find(), TYPING_MS);
    });
    for (const field of [this.archived, this.project])
      field.addEventListener("change", () => this.#find());
    this.project.addEventListener("focus", () => this.readProjects());
    this.more.addEventListener("click", () =>
      app.toasts.watch(this.#readMore(), "The list could not be read"),
    );
    this.list.addEventListener("keydown", (event) => this.#press(event));
  }

  /** Offer the projects that there are; where there are none, nothing is offered. */
  async readProjects() {
    const projects = await this.app.threads.projects();
    const chosen = this.project.value;
    fill(
      this.project,
      h("option", { value: "" }, "All projects"),
      projects.map(({ id, name }) => h("option", { value: id }, name)),
    );
    this.project.value = projects.some(({ id }) => id === chosen) ? chosen : "";
    this.project.hidden = projects.length === 0;
  }

  get #wanted() {
    return {
      text: this.filter.value.trim(),
      archived: this.archived.checked,
      projectId: this.project.value || null,
    };
  }

  async #find() {
    const wanted = this.#wanted;
    const search = (this.search = Symbol("search"));
    this.problem = "";
    if (wanted.text === "" && !wanted.archived && wanted.projectId === null) this.found = null;
    else {
      const found = await this.app.threads.find(wanted).catch((error) => {
        this.problem = error.message;
        return { threads: [], more: null };
      });
      // Somebody typed on meanwhile.
      if (search !== this.search) return;
      this.found = found;
    }
    this.draw(this.current);
  }

  async #readMore() {
    if (this.found === null) return this.app.threads.more();
    const { search, found } = this;
    const next = await this.app.threads.find(this.#wanted, found.more);
    if (search !== this.search) return;
    this.found = { threads: [...found.threads, ...next.threads], more: next.more };
    this.draw(this.current);
  }

  // The list is one stop of Tab; arrows go through it.
  #press(event) {
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1, Home: -Infinity, End: Infinity }[
      event.key
    ];
    if (step === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    event.stopPropagation();
    const links = [...this.list.children];
    const at = links.indexOf(event.target.closest("a"));
    const next = links[Math.max(0, Math.min(links.length - 1, at + step))];
    for (const link of links) link.tabIndex = link === next ? 0 : -1;
    next?.focus();
  }

  /** Draw the list; `current` is the id of the thread that is shown. */
  draw(current) {
    this.current = current;
    const { threads } = this.app;
    // What was found is shown as it is now.
    const shown = this.found?.threads.map((thread) => ({
      ...thread,
      ...threads.threads.get(thread.id),
    })) ?? [...threads.threads.values()];
    keyed(
      this.list,
      shown,
      (thread) => thread.id,
      createLink,
      (link, thread) => this.#fill(link, thread),
    );
    const links = [...this.list.children];
    if (!links.some((link) => link.tabIndex === 0 && link === document.activeElement)) {
      const stop = links.find((link) => link.hasAttribute("aria-current")) ?? links[0];
      for (const link of links) link.tabIndex = link === stop ? 0 : -1;
    }
    this.more.hidden = this.found === null ? !threads.hasMore : this.found.more === null;
    const isFound = this.found !== null;
    fill(this.none, shown.length > 0 ? null : nothing(isFound, this.problem, this.app.connection));
  }

  #fill(link, thread) {
    const isCurrent = thread.id === this.current;
    if (isCurrent) link.setAttribute("aria-current", "true");
    else link.removeAttribute("aria-current");
    const isOpen = this.app.threads.open.has(thread.id);
    fill(
      link,
      h("span.title", null, h("span.nowrap", null, titleOf(thread)), threadStatus(thread)),
      thread.snippet && h("span.sub.nowrap", null, oneLine(thread.snippet, 120)),
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

function nothing(isFound, problem, connection) {
  if (problem) return emptyState("The server could not search", problem);
  if (isFound) return emptyState("Nothing matches", "Change the search to see other threads.");
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
