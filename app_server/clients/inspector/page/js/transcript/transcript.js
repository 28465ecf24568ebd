// A thread as a conversation: its turns with their items, out of what was read of it and what is heard since.

import { Emitter } from "/js/core/emitter.js";

/** Entries of one thread that are kept; beyond it the oldest turn, or part of it, is forgotten. */
export const MAX_ENTRIES = 20_000;
/** Characters of an output, or a text, while it is streamed; the oldest are forgotten. */
export const MAX_STREAMED = 1024 * 1024;

/**
 * An entry is {key, type, turn, item}: `type` is "turn" for the heading of a turn, else what the item is. Beside the
 * items of the server there are "question", "steps" and "problem".
 *
 * Events: "entry" with an entry that is new at the end, "changed" with one that changed, "reset" when others did.
 */
export class Transcript extends Emitter {
  /** {id, status, startedAt, completedAt, durationMs, error, tokens, usage, entries}, oldest first. */
  turns = [];
  #turns = new Map();
  #entries = new Map();
  #total = null;

  /** All entries, in their order. */
  get entries() {
    return this.turns.flatMap((turn) => turn.entries);
  }

  get size() {
    return this.#entries.size;
  }

  /** The item with this id in a turn; undefined if there is none. */
  item(turnId, id) {
    return this.#entries.get(keyOf(turnId, { id }))?.item;
  }

  entry(key) {
    return this.#entries.get(key);
  }

  /** Put turns, oldest first, before all others. */
  prepend(turns) {
    const known = turns.filter(({ id }) => !this.#turns.has(id)).map((turn) => this.#turn(turn));
    this.turns = [...known, ...this.turns];
    this.emit("reset");
  }

  /** Take what a notification says about the thread. */
  take(method, params) {
    CHANGES[method]?.(this, params);
  }

  /** Put a question of the server where it was asked. */
  ask(question) {
    const turn = this.turnOf(question.params?.turnId) ?? this.turns.at(-1);
    if (turn === undefined) return;
    this.put(turn, { id: `question-${question.key}`, type: "question", question, outcome: null });
  }

  /** Note how a question ended: `outcome` is {answer}, {error} or {} if it was settled elsewhere. */
  settle(question, outcome) {
    const entry = this.#entries.get(`question-${question.key}`);
    if (entry === undefined) return;
    entry.item = { ...entry.item, outcome, settledAt: Date.now() };
    this.emit("changed", entry);
  }

  /** Forget a question: the connection that it was asked on has gone. */
  forget(question) {
    const entry = this.#entries.get(`question-${question.key}`);
    if (entry === undefined) return;
    this.#entries.delete(entry.key);
    entry.turn.entries.splice(entry.turn.entries.indexOf(entry), 1);
    this.emit("reset");
  }

  /** Note what turns have used, by turn id. */
  setUsage(usage) {
    for (const turn of this.turns) {
      if (!usage.has(turn.id)) continue;
      turn.usage = usage.get(turn.id);
      this.emit("changed", turn.entries[0]);
    }
  }

  turnOf(id) {
    return this.#turns.get(id);
  }

  /** Begin a turn, or note how it is now. */
  putTurn({ items, ...facts }) {
    const known = this.#turns.get(facts.id);
    if (known !== undefined) {
      Object.assign(known, facts);
      this.emit("changed", known.entries[0]);
      for (const item of items ?? []) this.put(known, item);
      return;
    }
    const turn = this.#turn({ items: items ?? [], ...facts });
    this.turns.push(turn);
    for (const entry of turn.entries) this.emit("entry", entry);
  }

  /** Put an item at the end of its turn, or in its place if it is known. */
  put(turn, item) {
    if (turn === undefined) return;
    const known = this.#entries.get(keyOf(turn.id, item));
    if (known !== undefined) {
      known.item = { ...known.item, ...item };
      this.emit("changed", known);
      return;
    }
    const entry = this.#entry(turn, item);
    turn.entries.push(entry);
    this.emit(turn === this.turns.at(-1) ? "entry" : "reset", entry);
    this.#trim();
  }

  /** Change an item that is known. */
  amend({ turnId, itemId }, change) {
    const entry = this.#entries.get(keyOf(turnId, { id: itemId }));
    if (entry === undefined) return;
    entry.item = { ...entry.item, ...change(entry.item) };
    this.emit("changed", entry);
  }

  /** Note the tokens of the thread, which are counted for the turn that they came in. */
  count(turn, { total, last }) {
    // What was used before the first report of this turn is that of others. Of a turn that has ended the last report
    // is told again.
    if (turn?.status === "inProgress") {
      const before = turn.tokensBefore ?? this.#total ?? total.totalTokens - last.totalTokens;
      turn.tokensBefore = before;
      turn.tokens = total.totalTokens - before;
      this.emit("changed", turn.entries[0]);
    }
    this.#total = total.totalTokens;
  }

  #turn({ items, ...facts }) {
    /** @type {any} */
    const turn = { ...facts, tokens: null, usage: null, entries: [] };
    this.#turns.set(turn.id, turn);
    turn.entries.push(this.#entry(turn, { id: turn.id, type: "turn" }));
    for (const item of items) turn.entries.push(this.#entry(turn, item));
    return turn;
  }

  #entry(turn, item) {
    const entry = { key: keyOf(turn.id, item), type: item.type, turn, item };
    this.#entries.set(entry.key, entry);
    return entry;
  }

  #trim() {
    if (this.size <= MAX_ENTRIES) return;
    const [oldest] = this.turns;
    const isOnly = this.turns.length === 1;
    // Of the only turn the heading stays.
    const gone = isOnly ? oldest.entries.splice(1, MAX_ENTRIES / 10) : oldest.entries;
    for (const { key } of gone) this.#entries.delete(key);
    if (!isOnly) {
      this.#turns.delete(oldest.id);
      this.turns.shift();
    }
    this.emit("reset");
  }
}

const OWN = new Set(["turn", "question", "steps", "problem"]);

// Some models give the items of each turn the same ids.
function keyOf(turnId, { id, type = undefined }) {
  return OWN.has(type) ? id : `${turnId}.${id}`;
}

// What notifications change.
const CHANGES = {
  "turn/started": (transcript, { turn }) =>
    transcript.putTurn({ startedAtMs: Date.now(), ...turn }),
  "turn/completed": (transcript, { turn }) => transcript.putTurn(turn),
  "item/started": (transcript, { item, turnId, startedAtMs }) =>
    transcript.put(transcript.turnOf(turnId), { startedAtMs, ...defined(item) }),
  "item/completed": (transcript, { item, turnId, completedAtMs }) =>
    transcript.put(transcript.turnOf(turnId), { completedAtMs, ...defined(item) }),
  "item/agentMessage/delta": textDelta,
  "item/plan/delta": textDelta,
  "item/reasoning/summaryTextDelta": (transcript, { summaryIndex, delta, ...where }) =>
    transcript.amend(where, ({ summary }) => ({ summary: longer(summary, summaryIndex, delta) })),
  "item/reasoning/textDelta": (transcript, { contentIndex, delta, ...where }) =>
    transcript.amend(where, ({ content }) => ({ content: longer(content, contentIndex, delta) })),
  "item/commandExecution/outputDelta": (transcript, { delta, ...where }) =>
    transcript.amend(where, ({ aggregatedOutput }) => ({
      aggregatedOutput: `${aggregatedOutput ?? ""}${delta}`.slice(-MAX_STREAMED),
    })),
  "item/fileChange/patchUpdated": (transcript, { changes, ...where }) =>
    transcript.amend(where, () => ({ changes })),
  "item/mcpToolCall/progress": (transcript, { message, ...where }) =>
    transcript.amend(where, () => ({ progress: message })),
  "turn/plan/updated": (transcript, { turnId, explanation, plan }) =>
    transcript.put(transcript.turnOf(turnId), {
      id: `steps-${turnId}`,
      type: "steps",
      explanation,
      plan,
    }),
  "thread/tokenUsage/updated": (transcript, { turnId, tokenUsage }) =>
    transcript.count(transcript.turnOf(turnId), tokenUsage),
  error: (transcript, { turnId, error, willRetry }) =>
    transcript.put(transcript.turnOf(turnId), {
      id: `problem-${turnId}-${transcript.size}`,
      type: "problem",
      error,
      willRetry,
    }),
};

function textDelta(transcript, { delta, ...where }) {
  transcript.amend(where, ({ text }) => ({ text: `${text ?? ""}${delta}`.slice(-MAX_STREAMED) }));
}

function longer(texts, index, delta) {
  const all = [...(texts ?? [])];
  while (all.length <= index) all.push("");
  all[index] += delta;
  return all;
}

// Members that the server has no value for do not take the place of one that is known.
function defined(item) {
  return Object.fromEntries(
    Object.entries(item).filter(([, value]) => value !== undefined && value !== null),
  );
}
