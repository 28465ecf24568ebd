// The page's conversation with the server, over the inspector's WebSocket: calls, answers to the
// server's questions, and connecting again whenever the connection has gone.

import { backoffMs } from "/js/core/backoff.js";
import { Emitter } from "/js/core/emitter.js";

/** The name by which the server knows this client. */
export const CLIENT_NAME = "app-server-inspector";
const PROTOCOL = "app-server-inspector";
const CALL_MS = 60_000;
const MAX_OPEN_CALLS = 256;

const SLOW_MS = 2000;

// Close codes of the inspector, in app_server/clients/inspector/run.py.
const REASONS = {
  4001: () => "No server answers there.",
  4002: () =>
    "The server closed the connection: it has ended, or starts again. This page connects when it is back.",
  4003: (reason) =>
    REFUSALS[reason.match(/HTTP (\d+)/)?.[1]] ?? `The inspector is not let in: ${reason}`,
};
const REFUSALS = {
  401: "The server refuses the token. Start the inspector with --token-file and the file of the right one.",
  403: "The server refuses the inspector: it is another user's, or not for this address (HTTP 403).",
  404: "What answers there is no app-server: look at the address (HTTP 404).",
  503: "The server takes no more connections now. This page tries again by itself (HTTP 503).",
};

/** The server's error, or that there was no answer. */
export class CallError extends Error {
  constructor(method, { code = null, message, data = null }) {
    super(message);
    this.method = method;
    this.code = code;
    this.data = data;
  }
}

/**
 * Events: "status" when `status` changed; "ready" after each handshake; "notification" and
 * "request" with a message of the server.
 */
export class Connection extends Emitter {
  /** `state` is connecting, connected, waiting or refused; `reason` is a sentence. */
  status = { state: "connecting", reason: "", failures: 0 };
  /** What the handshake was answered with. */
  server = null;
  #socket = null;
  #calls = new Map();
  #nextId = 1;
  #timer = null;

  constructor(token, log, timings) {
    super();
    this.token = token;
    this.log = log;
    this.timings = timings;
  }

  get isReady() {
    return this.status.state === "connected";
  }

  /** Connect, and from then on again whenever the connection has gone. */
  open() {
    clearTimeout(this.#timer);
    const address = `ws://${location.host}/wire`;
    const socket = new WebSocket(address, [PROTOCOL, `token.${this.token}`]);
    this.#socket = socket;
    this.#setStatus("connecting", this.status.reason);
    let opened = false;
    let problem = null;
    socket.onopen = () => {
      opened = true;
      const slow = setTimeout(
        () =>
          this.#setStatus(
            "connecting",
            "The server has not answered yet: it is starting, or busy.",
          ),
        SLOW_MS,
      );
      this.#shakeHands()
        .catch((error) => {
          // An answer that is an error: something else than this page expects is there.
          if (error.code !== null) {
            problem = `The server speaks another version of the protocol: ${error.message}`;
          }
          socket.close();
        })
        .finally(() => clearTimeout(slow));
    };
    socket.onmessage = (event) => this.#take(event.data);
    socket.onclose = (event) => this.#lost(event, opened, problem);
  }

  /**
   * Call a method; resolves to its result, rejects with CallError. `quiet` calls are the page's own
   * polling, which lists leave out unless they are asked for.
   */
  async call(method, params = {}, { quiet = false, timeoutMs = CALL_MS } = {}) {
    if (!this.isReady) throw new CallError(method, { message: "The server is not connected." });
    return this.#request(method, params, { quiet, timeoutMs });
  }

  /** Answer a request of the server. */
  reply(id, result) {
    this.#send({ id, result });
  }

  /** Answer a request of the server with an error. */
  refuse(id, error) {
    this.#send({ id, error });
  }

  #request(method, params, { quiet, timeoutMs }) {
    if (this.#calls.size >= MAX_OPEN_CALLS) {
      const message = `${MAX_OPEN_CALLS} calls wait for answers already.`;
      return Promise.reject(new CallError(method, { message }));
    }
    const id = this.#nextId++;
    return new Promise((resolve, reject) => {
      const message = `No answer in ${timeoutMs / 1000} s.`;
      const timer = setTimeout(() => this.#settle(id, { error: { message } }), timeoutMs);
      this.#calls.set(id, { method, resolve, reject, timer, began: performance.now() });
      this.#send({ id, method, params }, quiet);
    });
  }

  async #shakeHands() {
    const clientInfo = { name: CLIENT_NAME, title: "Inspector", version: "1" };
    const params = { clientInfo, capabilities: { experimentalApi: true } };
    this.server = await this.#request("initialize", params, { quiet: false, timeoutMs: CALL_MS });
    this.#send({ method: "initialized" });
    this.status.failures = 0;
    this.#setStatus("connected", "");
    this.emit("ready");
  }

  #take(text) {
    const message = JSON.parse(text);
    if (message.method === undefined) {
      this.log.add("in", message, text.length);
      this.#settle(message.id, message);
      return;
    }
    this.log.add("in", message, text.length);
    this.emit(message.id === undefined ? "notification" : "request", message);
  }

  #settle(id, { result = undefined, error = undefined }) {
    const call = this.#calls.get(id);
    if (call === undefined) return;
    this.#calls.delete(id);
    clearTimeout(call.timer);
    this.timings.add(call.method, performance.now() - call.began);
    if (error === undefined) call.resolve(result);
    else call.reject(new CallError(call.method, error));
  }

  #send(message, quiet = false) {
    if (this.#socket?.readyState !== WebSocket.OPEN) return;
    const text = JSON.stringify(message);
    this.log.add("out", message, text.length, quiet);
    this.#socket.send(text);
  }

  #lost(event, opened, problem) {
    this.server = null;
    this.log.forgetRequests();
    for (const id of [...this.#calls.keys()]) {
      this.#settle(id, { error: { message: "The connection ended before the answer." } });
    }
    const known = REASONS[event.code];
    this.status.failures += 1;
    if (known !== undefined) {
      this.#setStatus("waiting", known(event.reason));
    } else if (problem !== null) {
      this.#setStatus("waiting", problem);
    } else if (opened) {
      this.#setStatus(
        "waiting",
        "The inspector has stopped. Start it again with “app-server inspect”.",
      );
    } else {
      // A browser does not say why: the inspector has gone, or this is not the page it made.
      this.#setStatus(
        "waiting",
        "The inspector does not answer. If it was started again, open its new address.",
      );
    }
    this.#timer = setTimeout(() => this.open(), backoffMs(this.status.failures));
  }

  #setStatus(state, reason) {
    this.status.state = state;
    this.status.reason = reason;
    this.emit("status");
  }
}
