// Receipts of signals, newest first: those that the server lists, kept up to date by its events.

import { Emitter } from "/js/core/emitter.js";

const PAGE = 100;
export const MAX_RECEIPTS = 1000;

/** Events: "changed". */
export class SignalStore extends Emitter {
  /** Source and id to the receipt; null before the first list came. */
  receipts = null;
  /** Why there is no list: a server may know no signals; "" if there is one. */
  problem = "";

  constructor(connection) {
    super();
    this.connection = connection;
    connection.on("notification", ({ method, params }) => {
      if (method === "signal/updated") this.#take(params.receipt);
    });
  }

  /** Read the list; a failure becomes `problem`. */
  async refresh() {
    try {
      const page = await this.connection.call("signal/list", { limit: PAGE });
      this.receipts = new Map(page.data.map((receipt) => [keyOf(receipt), receipt]));
      this.problem = "";
    } catch (error) {
      this.problem = error.message;
    }
    this.emit("changed");
  }

  /** Put a message into a thread; returns the receipt. */
  async deliver(params) {
    const { receipt } = await this.connection.call("signal/deliver", params);
    this.#take(receipt);
    return receipt;
  }

  /** Take a signal back that no model has seen. */
  async recall({ source, signalId }) {
    this.#take((await this.connection.call("signal/recall", { source, id: signalId })).receipt);
  }

  #take(receipt) {
    const known = this.receipts ?? new Map();
    const key = keyOf(receipt);
    if (known.has(key)) known.set(key, receipt);
    else this.receipts = new Map([[key, receipt], ...known].slice(0, MAX_RECEIPTS));
    this.emit("changed");
  }
}

/** What names a signal for ever. */
export function keyOf(receipt) {
  return `${receipt.source}\n${receipt.signalId}`;
}
