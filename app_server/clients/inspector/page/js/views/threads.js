// The view of threads: the list, the thread that is chosen, the message that is selected.

import { fill, h, onFrame } from "/js/core/dom.js";
import { Detail } from "/js/threads/detail.js";
import { startThread } from "/js/threads/new_thread.js";
import { ThreadList } from "/js/threads/thread_list.js";
import { ThreadPane } from "/js/threads/thread_pane.js";
import { emptyState } from "/js/widgets/empty.js";

export function threadsView(app, [threadId]) {
  const list = new ThreadList(app);
  const detail = new Detail();
  const place = h(".pane");
  const begin = h(
    "button.primary",
    { type: "button", dataset: { newThread: "" }, onclick: () => startThread(app) },
    "New thread",
  );
  let pane = null;

  const draw = onFrame(() => {
    list.draw(threadId);
    begin.disabled = !app.connection.isReady;
    if (threadId === undefined) fill(place, welcome());
    else if (pane === null && app.threads.open.has(threadId)) showPane();
    pane?.draw();
  });
  const showPane = () => {
    pane = new ThreadPane(app, threadId, detail);
    place.replaceWith(pane.element);
  };
  const listen = async () => {
    if (threadId === undefined || !app.connection.isReady) return;
    try {
      await app.threads.listen(threadId);
    } catch (error) {
      fill(place, emptyState("This thread cannot be opened", error.message));
    }
  };

  const off = [
    app.threads.on("changed", draw),
    app.questions.on("changed", draw),
    app.connection.on("status", draw),
    app.connection.on("ready", listen),
  ];
  draw();
  listen();
  return {
    title: "Threads",
    element: h(
      ".view",
      null,
      h(
        ".bar",
        null,
        h("h1.grow", null, "Threads"),
        threadId !== undefined && h("a.back", { href: "#/threads" }, "All threads"),
        begin,
      ),
      h(
        `.panes.three${threadId === undefined ? "" : ".chosen"}`,
        null,
        list.element,
        place,
        detail.element,
      ),
    ),
    close() {
      for (const end of off) end();
      pane?.close();
    },
  };
}

function welcome() {
  return emptyState(
    "Choose a thread",
    "Its messages appear here as they come, with what the server asks and what clients answered. To try it without an account, start a thread and send “/exec uname”.",
  );
}
