// The rows of a timeline out of messages: filtered, and with the deltas of one text as one row.

const DELTA = /[dD]elta$|\/progress$/;
/** Characters of the deltas in one row; later ones are only counted. */
export const MAX_FOLDED_TEXT = 256 * 1024;

/** Rows are {kind: "message", entry, count, text, revision} or {kind: "item", item, turn}. */
export class Rows {
  /** An array that is only ever appended to until `rebuild`. */
  all = [];
  #history = [];

  constructor({ folds = true, filter = "", showsQuiet = false } = {}) {
    this.folds = folds;
    this.filter = filter;
    this.showsQuiet = showsQuiet;
  }

  /** Rows of what happened before this page listened; shown first. */
  setHistory(turns) {
    this.#history = turns.flatMap((turn) =>
      turn.items.map((item) => ({ kind: "item", item, turn, revision: 0 })),
    );
  }

  /** Make the rows anew from all messages. */
  rebuild(entries) {
    this.all = this.#history.filter((row) => this.#matches(row.item.type, row.item));
    for (const entry of entries) this.add(entry);
    return this.all;
  }

  /** Add a message; returns whether it made a row, or changed one. */
  add(entry) {
    if (entry.quiet && !this.showsQuiet) return false;
    if (!this.#matches(entry.method, entry.message)) return false;
    const last = this.all.at(-1);
    if (this.folds && isDelta(entry) && last?.kind === "message" && isSameText(last.entry, entry)) {
      last.count += 1;
      last.size += entry.size;
      last.revision += 1;
      if (last.text.length < MAX_FOLDED_TEXT) last.text += entry.message.params.delta ?? "";
      return true;
    }
    this.all.push({
      kind: "message",
      entry,
      count: 1,
      size: entry.size,
      text: isDelta(entry) ? (entry.message.params.delta ?? "") : "",
      revision: 0,
    });
    return true;
  }

  #matches(method, value) {
    if (this.filter === "") return true;
    const wanted = this.filter.toLowerCase();
    return (
      method.toLowerCase().includes(wanted) || JSON.stringify(value).toLowerCase().includes(wanted)
    );
  }
}

/** Whether a message only adds to a text. */
export function isDelta(entry) {
  return entry.kind === "notification" && DELTA.test(entry.method);
}

function isSameText(one, other) {
  return one.method === other.method && one.itemId !== null && one.itemId === other.itemId;
}
