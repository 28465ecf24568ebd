// Asks an app-server one question and writes the answer as it comes: node client.mts ws://127.0.0.1:4500 QUESTION
// Types: app-server generate-ts --out generated. Libraries: vscode-jsonrpc, ws. Checked and run by .ci/clients.
import { readFileSync } from "node:fs";
import { AbstractMessageReader, AbstractMessageWriter, createMessageConnection } from "vscode-jsonrpc/node";
import type { DataCallback, Message } from "vscode-jsonrpc/node";
import { WebSocket } from "ws";
import type { ClientRequests, ServerNotifications, ServerRequests } from "./generated/index";

const [url = "ws://127.0.0.1:4500", question = "Hello there."] = process.argv.slice(2);
const file = process.env.APP_SERVER_TOKEN_FILE;
const headers = file ? { Authorization: `Bearer ${readFileSync(file, "utf8").trim()}` } : {};
const socket = new WebSocket(url, { headers, perMessageDeflate: false });

class Reader extends AbstractMessageReader {
  listen(take: DataCallback) {
    const hear = (data: unknown) => take(JSON.parse(String(data)) as Message);
    socket.on("message", hear).on("error", (error) => this.fireError(error)).on("close", () => this.fireClose());
    return { dispose: () => socket.off("message", hear) };
  }
}
class Writer extends AbstractMessageWriter {
  write = async (message: Message) => socket.send(JSON.stringify(message));
  end = () => socket.close();
}

await new Promise((resolve, reject) => socket.once("open", resolve).once("error", reject));
const connection = createMessageConnection(new Reader(), new Writer());
const call = <M extends keyof ClientRequests>(method: M, params: ClientRequests[M]["params"]) =>
  connection.sendRequest<ClientRequests[M]["result"]>(method, params);
const hear = <M extends keyof ServerNotifications>(method: M, take: (params: ServerNotifications[M]) => void) =>
  connection.onNotification(method, take);

const APPROVAL = "item/commandExecution/requestApproval";
connection.onRequest(APPROVAL, (): ServerRequests[typeof APPROVAL]["result"] => ({ decision: "decline" }));
hear("item/agentMessage/delta", ({ delta }) => process.stdout.write(delta));
hear("turn/completed", ({ turn }) => {
  console.log(`\n[${turn.status}]`);
  connection.end();
});
connection.listen();
await call("initialize", { clientInfo: { name: "sample", version: "1" } });
await connection.sendNotification("initialized");
const { thread } = await call("thread/start", { cwd: process.cwd() });
await call("turn/start", { threadId: thread.id, input: [{ type: "text", text: question }] });
