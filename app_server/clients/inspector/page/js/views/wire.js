// The view of the wire: every message of this page, and any request that one wants to make.

import { fill, h } from "/js/core/dom.js";
import { Detail } from "/js/threads/detail.js";
import { Timeline } from "/js/threads/timeline.js";
import { jsonField } from "/js/widgets/json_field.js";

let methods = null;

export function wireView(app) {
  const { log } = app;
  const detail = new Detail();
  const timeline = new Timeline({
    log,
    entries: () => log.entries,
    concerns: () => true,
    label: "All messages",
    onselect: (row) => detail.show(row),
    onchange: (row) => detail.refresh(row),
  });
  const quiet = h(
    "button.plain",
    { type: "button", "aria-pressed": false, title: "Show what the page asks every two seconds" },
    "Show polling",
  );
  quiet.addEventListener("click", () => {
    timeline.rows.showsQuiet = !timeline.rows.showsQuiet;
    quiet.setAttribute("aria-pressed", timeline.rows.showsQuiet);
    timeline.rebuild();
  });
  const clear = h("button.plain", { type: "button", onclick: () => log.clear() }, "Clear");
  timeline.foot.append(h("span.grow"), timeline.fold, timeline.follow, quiet, clear);
  return {
    element: h(
      ".view",
      null,
      h(".bar", null, h("h1.grow", null, "Wire"), timeline.filter),
      h(
        ".panes.wide",
        null,
        h(
          "section.pane",
          { "aria-label": "Messages" },
          timeline.list.element,
          timeline.foot,
          requestForm(app),
        ),
        detail.element,
      ),
    ),
    close: () => timeline.close(),
  };
}

function requestForm(app) {
  const names = h("datalist", { id: "wire-methods" });
  const method = h("input.code", {
    "aria-label": "Method",
    placeholder: "Method, such as thread/list",
    list: "wire-methods",
    spellcheck: "false",
  });
  const params = jsonField("Params", {}, { rows: 4 });
  const form = h(
    "form.composer",
    null,
    h(
      ".row",
      null,
      h(".grow", null, method, names),
      h("button.primary", { type: "submit" }, "Send request"),
    ),
    params.element,
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const value = params.read();
    if (value === undefined || method.value.trim() === "") return;
    // The answer, also an error, is in the list above.
    app.connection.call(method.value.trim(), value).catch(() => {});
  });
  loadMethods().then((all) =>
    fill(
      names,
      all.map((value) => h("option", { value })),
    ),
  );
  return form;
}

async function loadMethods() {
  methods ??= fetch("/methods.json").then((answer) => answer.json());
  return methods.catch(() => []);
}
