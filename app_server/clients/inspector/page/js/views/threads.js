// The view of threads: the list, the thread that is chosen, the message of its wire log that is selected.

import { fill, h, onFrame } from "/js/core/dom.js";
import { Detail } from "/js/threads/detail.js";
import { startThread } from "/js/threads/new_thread.js";
import { ThreadList } from "/js/threads/thread_list.js";
import { ThreadPane } from "/js/threads/thread_pane.js";
import { emptyState } from "/js/widgets/empty.js";

export function threadsView(app, parts) {
  let [threadId, ...rest] = parts;
  const list = new ThreadList(app);
  const detail = new Detail();
  const empty = h(".pane");
  const begin = h(
    "button.primary",
    { type: "button", dataset: { newThread: "" }, onclick: () => startThread(app) },
    "New thread",
  );
  const back = h("a.back", { href: "#/threads" }, "All threads");
  const panes = h(".panes.three", null, list.element, empty, detail.element);
  let pane = null;

  const draw = onFrame(() => {
    list.draw(threadId);
    begin.disabled = !app.connection.isReady;
    if (threadId === undefined) fill(empty, welcome());
    else if (pane === null && app.threads.open.has(threadId)) {
      pane = new ThreadPane(app, threadId, detail);
      empty.replaceWith(pane.element);
      pane.move(rest);
    }
    pane?.draw();
  });
  const listen = async () => {
    const wanted = threadId;
    if (wanted === undefined || !app.connection.isReady) return;
    try {
      await app.threads.listen(wanted);
    } catch (error) {
      if (wanted === threadId)
        fill(empty, emptyState("This thread cannot be opened", error.message));
    }
  };
  const mark = () => {
    back.hidden = threadId === undefined;
    panes.classList.toggle("chosen", threadId !== undefined);
    // Only messages of the wire are selected: a transcript has the room for itself.
    panes.classList.toggle("conversation", rest[0] !== "wire");
  };
  const move = ([nextId, ...next]) => {
    const isOther = nextId !== threadId;
    [threadId, rest] = [nextId, next];
    mark();
    if (isOther) {
      pane?.close();
      pane?.element.replaceWith(empty);
      pane = null;
      detail.show(null);
      fill(empty);
      listen();
    } else pane?.move(rest);
    draw();
  };

  const off = [
    app.threads.on("changed", draw),
    app.questions.on("changed", draw),
    app.connection.on("status", draw),
    app.connection.on("ready", listen),
    app.connection.on("ready", () => list.readProjects()),
  ];
  mark();
  draw();
  listen();
  if (app.connection.isReady) list.readProjects();
  return {
    element: h(".view", null, h(".bar", null, h("h1.grow", null, "Threads"), back, begin), panes),
    move,
    close() {
      for (const end of off) end();
      pane?.close();
    },
  };
}

function welcome() {
  return emptyState(
    "Choose a thread",
    "Its conversation appears here as it goes on, with what the server asks and what was answered. To try it without an account, start a thread and send “/exec uname”.",
  );
}
