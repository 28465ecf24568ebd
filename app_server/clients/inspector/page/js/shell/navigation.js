// The list of views on the left, and the state of the connection below it.

import { fill, h } from "/js/core/dom.js";
import { icon } from "/js/widgets/icons.js";
import { statusSign } from "/js/widgets/status.js";
import { themeButton } from "/js/shell/theme.js";

const STATES = {
  connected: ["connected", "good"],
  connecting: ["connecting", "attention"],
  waiting: ["not connected", "bad"],
};

export class Navigation {
  /** `views`: [{name, title, key}]; `onhelp` shows the keys. */
  constructor(app, views, onhelp) {
    this.app = app;
    this.views = views;
    this.title = "";
    this.links = new Map(views.map((view) => [view.name, this.#link(view)]));
    this.state = h(".stack.tight", { role: "status" });
    this.element = h(
      "nav.nav",
      { "aria-label": "Views" },
      h(".brand", null, icon("brand"), "app-server inspector"),
      h(
        "ul",
        null,
        [...this.links.values()].map(({ link }) => h("li", null, link)),
      ),
      h(
        ".foot",
        null,
        this.state,
        h(
          ".row",
          null,
          h("button.plain", { type: "button", onclick: onhelp }, "Keys ", h("kbd", null, "?")),
          themeButton(),
        ),
      ),
    );
    app.connection.on("status", () => this.draw());
    app.questions.on("changed", () => this.draw());
    app.threads.on("changed", () => this.draw());
    app.waiting.on("changed", () => this.draw());
  }

  /** Mark the view that is shown. */
  mark(name) {
    this.title = this.views.find((view) => view.name === name).title;
    for (const [other, { link }] of this.links) {
      if (other === name) {
        link.setAttribute("aria-current", "page");
        // On a narrow screen the views are a line that scrolls.
        link.scrollIntoView({ block: "nearest", inline: "nearest" });
      } else link.removeAttribute("aria-current");
    }
    this.draw();
  }

  draw() {
    const { connection, questions, threads, waiting } = this.app;
    const { state, reason } = connection.status;
    fill(
      this.state,
      statusSign(...STATES[state]),
      state === "connected"
        ? h("code.nowrap", { title: connection.server.userAgent }, connection.server.codexHome)
        : h("p.muted", null, reason),
    );
    const open = questions.open.size + waiting.elsewhere.length;
    this.#count("requests", open, "attention");
    this.#title(open);
    this.#count("threads", threads.threads.size, "");
  }

  // A page in another tab says so too.
  #title(open) {
    const count = open > 0 ? `(${open}) ` : "";
    document.title = `${count}${this.title} – app-server inspector`;
  }

  #count(name, number, look) {
    const { count } = this.links.get(name);
    count.hidden = number === 0;
    count.className = `count ${look}`;
    count.textContent = number;
  }

  #link({ name, title, key }) {
    const count = h("span.count", { hidden: true });
    const link = h(
      "a",
      { href: `#/${name}`, title: `${title} (${key})` },
      icon(name),
      h("span.grow", null, title),
      count,
    );
    return { link, count };
  }
}
