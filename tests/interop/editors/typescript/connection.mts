// A connection to an app-server with the names and types of its protocol: vscode-jsonrpc over ws.
// Types: app-server generate-ts --out generated.
import { readFileSync } from "node:fs";
import { AbstractMessageReader, AbstractMessageWriter, createMessageConnection } from "vscode-jsonrpc/node";
import type { DataCallback, Message, RequestHandler } from "vscode-jsonrpc/node";
import { WebSocket } from "ws";
import type { ClientRequests, ServerNotifications, ServerRequests } from "./generated/index";

class Reader extends AbstractMessageReader {
  readonly socket: WebSocket;
  constructor(socket: WebSocket) {
    super();
    this.socket = socket;
  }
  listen(take: DataCallback) {
    const hear = (data: unknown) => take(JSON.parse(String(data)) as Message);
    this.socket
      .on("message", hear)
      .on("error", (error) => this.fireError(error))
      .on("close", () => this.fireClose());
    return { dispose: () => this.socket.off("message", hear) };
  }
}

class Writer extends AbstractMessageWriter {
  readonly socket: WebSocket;
  constructor(socket: WebSocket) {
    super();
    this.socket = socket;
  }
  write = async (message: Message) => this.socket.send(JSON.stringify(message));
  end = () => this.socket.close();
}

export type Connection = Awaited<ReturnType<typeof connect>>;

/** Connects as the client `name`; a server that wants a token finds it in `tokenFile`. */
export async function connect(url: string, name: string, tokenFile?: string) {
  const headers = tokenFile ? { Authorization: `Bearer ${readFileSync(tokenFile, "utf8").trim()}` } : {};
  const socket = new WebSocket(url, { headers, perMessageDeflate: false });
  await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
  const messages = createMessageConnection(new Reader(socket), new Writer(socket));
  const connection = {
    call: <M extends keyof ClientRequests>(method: M, params: ClientRequests[M]["params"]) =>
      messages.sendRequest<ClientRequests[M]["result"]>(method, params),
    hear: <M extends keyof ServerNotifications>(method: M, take: (params: ServerNotifications[M]) => void) =>
      messages.onNotification(method, take),
    /** What is asked and has no answer here is refused by vscode-jsonrpc with -32601. */
    answer: <M extends keyof ServerRequests>(
      method: M,
      decide: RequestHandler<ServerRequests[M]["params"], ServerRequests[M]["result"], void>,
    ) => messages.onRequest(method, decide),
    closed: (take: () => void) => messages.onClose(take),
    end: () => messages.end(),
  };
  messages.listen();
  await connection.call("initialize", { clientInfo: { name, version: "1" } });
  await messages.sendNotification("initialized");
  return connection;
}
