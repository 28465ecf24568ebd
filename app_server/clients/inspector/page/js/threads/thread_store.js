// The threads of the server as far as this page knows them, and those that it listens to.

import { Emitter } from "/js/core/emitter.js";
import { Transcript } from "/js/transcript/transcript.js";

const PAGE = 50;
const HISTORY_TURNS = 20;
/** Threads that this page listens to; beyond it the one opened first that does not wait is let go. */
export const MAX_OPEN = 64;
/** Threads in the list that came by themselves; beyond it the oldest one leaves the list. */
export const MAX_THREADS = 2000;
const MAX_USAGE_PAGES = 10;

/** Events: "changed" when a list may look different; "opened" with a thread's id. */
export class ThreadStore extends Emitter {
  /** Thread id to the thread as the server shows it, in the order of the list. */
  threads = new Map();
  /** Thread id to what is known of a thread that this page listens to. */
  open = new Map();
  #cursor = null;

  /** The questions of `questions` are put into the transcripts of their threads. */
  constructor(connection, questions) {
    super();
    this.connection = connection;
    this.questions = questions;
    const of = ({ params }) => this.open.get(params?.threadId)?.transcript;
    questions.on("asked", (question) => of(question)?.ask(question));
    questions.on("settled", ({ question, outcome }) => of(question)?.settle(question, outcome));
    questions.on("lost", (question) => of(question)?.forget(question));
    connection.on("ready", () => this.#again());
    connection.on("notification", (message) => this.#hear(message));
  }

  get hasMore() {
    return this.#cursor !== null;
  }

  /**
   * Have the server look for threads: by a text in their names and messages, among archived ones, in a project. Resolves
   * to {threads, more}; `cursor` is the `more` of the page before.
   */
  async find({ text, archived, projectId }, cursor = null) {
    const page = { limit: PAGE, archived, cursor };
    if (text !== "" && projectId === null) {
      try {
        const found = await this.connection.call("thread/search", { ...page, searchTerm: text });
        const threads = found.data.map(({ thread, snippet }) => ({ ...thread, snippet }));
        return { threads, more: found.nextCursor };
      } catch (error) {
        // A server without a search of messages looks at names.
        if (error.code === null) throw error;
      }
    }
    const filters = { ...(text && { searchTerm: text }), ...(projectId && { projectId }) };
    const listed = await this.connection.call("thread/list", { ...page, ...filters });
    return { threads: listed.data, more: listed.nextCursor };
  }

  /** The projects of the server, [] if it has none or does not know them. */
  async projects() {
    const page = await this.connection.call("project/list", {}, { quiet: true }).catch(() => null);
    return page?.data ?? [];
  }

  /** Read the first page of the list. */
  async refresh() {
    const page = await this.connection.call("thread/list", { limit: PAGE });
    const listed = new Map(page.data.map((thread) => [thread.id, thread]));
    // Threads in memory are in no list: they stay while this page listens to them.
    const unlisted = [...this.threads].filter(([id]) => !listed.has(id) && this.open.has(id));
    this.threads = new Map([...unlisted, ...listed]);
    this.#cursor = page.nextCursor;
    this.emit("changed");
  }

  /** Read the next page of the list. */
  async more() {
    const page = await this.connection.call("thread/list", { limit: PAGE, cursor: this.#cursor });
    for (const thread of page.data) this.threads.set(thread.id, thread);
    this.#cursor = page.nextCursor;
    this.emit("changed");
  }

  /** Start a thread and listen to it; returns its id. */
  async start(params) {
    const since = this.connection.log.next;
    const answer = await this.connection.call("thread/start", params);
    this.#opened(answer, [], since);
    await this.#closeOldest();
    return answer.thread.id;
  }

  /** Load a thread, if it is not loaded, and listen to it. Twice is harmless. */
  async listen(threadId) {
    if (this.open.has(threadId)) return;
    const since = this.connection.log.next;
    const answer = await this.connection.call("thread/resume", {
      threadId,
      excludeTurns: true,
      initialTurnsPage: { limit: HISTORY_TURNS, itemsView: "full" },
    });
    const page = answer.initialTurnsPage;
    this.#opened(answer, [...(page?.data ?? [])].reverse(), since, page?.nextCursor ?? null);
    await this.#closeOldest();
  }

  /** Read turns of a thread that are older than those that are known. */
  async earlier(threadId) {
    const known = this.open.get(threadId);
    const page = await this.connection.call("thread/turns/list", {
      threadId,
      cursor: known.earlierCursor,
      limit: HISTORY_TURNS,
      itemsView: "full",
    });
    const turns = page.data.reverse();
    known.history = [...turns, ...known.history];
    known.earlierCursor = page.nextCursor;
    known.transcript.prepend(turns);
    this.#readUsage(threadId);
    this.emit("opened", threadId);
    this.emit("changed");
  }

  /** Begin a turn, or add to the one that runs. */
  send(threadId, text) {
    return this.connection.call("turn/start", { threadId, input: [{ type: "text", text }] });
  }

  /** End the running turn. */
  interrupt(threadId) {
    const turnId = this.open.get(threadId)?.turnId;
    return this.connection.call("turn/interrupt", { threadId, turnId });
  }

  /** An item that a thread's events have told of; undefined if they have not. */
  item({ threadId, turnId, itemId }) {
    return this.open.get(threadId)?.transcript.item(turnId, itemId);
  }

  /** Put a thread, as the server shows it now, at the beginning of the list. */
  putFirst(thread) {
    this.threads.delete(thread.id);
    this.threads = new Map([[thread.id, thread], ...this.threads]);
    if (this.threads.size <= MAX_THREADS) return;
    this.threads.delete([...this.threads.keys()].findLast((id) => !this.open.has(id)));
  }

  #opened(answer, turns, since, earlierCursor = null) {
    const { thread } = answer;
    this.putFirst(thread);
    const running = turns.find((turn) => turn.status === "inProgress");
    const transcript = new Transcript();
    transcript.prepend(turns);
    for (const question of this.questions.ofThread(thread.id)) transcript.ask(question);
    this.open.set(thread.id, {
      settings: answer,
      history: turns,
      earlierCursor,
      since,
      turnId: running?.id ?? null,
      transcript,
      usage: new Map(),
      usageTotal: null,
      tokens: null,
      streamId: answer.streamId,
      seq: answer.seq,
    });
    this.emit("opened", thread.id);
    this.emit("changed");
    this.#readUsage(thread.id);
  }

  // What the thread's turns have used; other servers than ours do not say so.
  async #readUsage(threadId) {
    const usage = new Map();
    let total = null;
    const params = { threadId, groupBy: "turn", cursor: null };
    for (let pages = 0; pages < MAX_USAGE_PAGES; pages++) {
      try {
        const page = await this.connection.call("usage/read", params, { quiet: true });
        for (const row of page.data) usage.set(row.group, row.usage);
        total = page.total;
        params.cursor = page.nextCursor;
      } catch {
        return;
      }
      if (params.cursor === null) break;
    }
    const known = this.open.get(threadId);
    if (known === undefined) return;
    Object.assign(known, { usage, usageTotal: total });
    known.transcript.setUsage(usage);
    this.emit("changed");
  }

  async #closeOldest() {
    while (this.open.size > MAX_OPEN) {
      const ids = [...this.open.keys()];
      const oldest = ids.find((id) => !this.threads.get(id)?.status?.activeFlags?.length) ?? ids[0];
      this.open.delete(oldest);
      await this.connection.call("thread/unsubscribe", { threadId: oldest });
    }
  }

  // After the connection was lost: the events that were missed, or the turns as they are now.
  async #again() {
    const before = [...this.open.entries()];
    await this.refresh().catch(() => {});
    for (const [threadId, known] of before) {
      const since = this.connection.log.next;
      try {
        const answer = await this.connection.call("thread/resume", {
          threadId,
          excludeTurns: true,
          streamId: known.streamId,
          afterSeq: known.seq,
        });
        if (answer.resyncRequired === false) {
          known.settings = answer;
          known.streamId = answer.streamId;
        } else if (answer.resyncRequired) {
          this.#opened(answer, answer.thread.turns.slice(-HISTORY_TURNS), since);
        } else {
          // A server without numbered events.
          this.open.delete(threadId);
          await this.listen(threadId);
        }
      } catch {
        // A thread of memory alone has gone with its server.
        if (this.connection.isReady) this.open.delete(threadId);
      }
    }
    this.emit("changed");
  }

  #hear({ method, params, seq }) {
    const threadId = params?.threadId ?? params?.thread?.id;
    if (threadId === undefined || threadId === null) return;
    const known = this.open.get(threadId);
    if (known !== undefined && seq !== undefined) known.seq = seq;
    known?.transcript.take(method, params);
    if (known !== undefined && method === "turn/completed") this.#readUsage(threadId);
    const change = CHANGES[method];
    if (change === undefined) return;
    change(this, threadId, params, known);
    this.emit("changed");
    if (method === "thread/status/changed" && known === undefined) this.#readTitle(threadId);
  }

  // What was said first in a thread is told to its listeners alone.
  async #readTitle(threadId) {
    const thread = this.threads.get(threadId);
    if (thread !== undefined && (thread.preview || thread.name)) return;
    const answer = await this.connection
      .call("thread/read", { threadId }, { quiet: true })
      .catch(() => null);
    if (answer === null) return;
    this.putFirst(answer.thread);
    this.emit("changed");
  }
}

// What notifications change.
const CHANGES = {
  "thread/started": (store, id, { thread }) => {
    if (!store.threads.has(id)) store.putFirst(thread);
  },
  "thread/status/changed": (store, id, { status }) => amend(store, id, { status }),
  "thread/name/updated": (store, id, { threadName }) =>
    amend(store, id, { name: threadName ?? null }),
  "thread/archived": (store, id) => forget(store, id),
  "thread/deleted": (store, id) => forget(store, id),
  "thread/closed": (store, id) => store.open.delete(id),
  "turn/started": (store, id, { turn }, known) => {
    if (known !== undefined) known.turnId = turn.id;
  },
  "turn/completed": (store, id, params, known) => {
    if (known !== undefined) known.turnId = null;
  },
  "item/started": (store, id, { item }) => {
    const thread = store.threads.get(id);
    if (item.type === "userMessage" && thread && !thread.preview) {
      amend(store, id, { preview: item.content?.[0]?.text ?? "" });
    }
  },
  "thread/tokenUsage/updated": (store, id, { tokenUsage }, known) => {
    if (known !== undefined) known.tokens = tokenUsage.total.totalTokens;
  },
};

function amend(store, id, members) {
  const thread = store.threads.get(id);
  if (thread !== undefined) store.threads.set(id, { ...thread, ...members });
}

function forget(store, id) {
  store.threads.delete(id);
  store.open.delete(id);
}
