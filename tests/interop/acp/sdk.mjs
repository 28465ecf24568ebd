// Asks an agent of ACP as a client made of @agentclientprotocol/sdk, and prints what came of it as one line of JSON.
// DIR of this file has node_modules with that and ws.
// usage: [APP_SERVER_TOKEN_FILE=FILE] node sdk.mjs FOLDER QUESTION ws://HOST:PORT/acp | node sdk.mjs FOLDER QUESTION COMMAND WORD…
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { Readable, Writable } from "node:stream";
import * as acp from "@agentclientprotocol/sdk";
import { createWebSocketStream } from "@agentclientprotocol/sdk/experimental/ws-client";

const [folder, question, ...agent] = process.argv.slice(2);
const program = agent[0].startsWith("ws://")
  ? null
  : spawn(agent[0], agent.slice(1), { stdio: ["pipe", "pipe", "inherit"] });
const stream = program
  ? acp.ndJsonStream(Writable.toWeb(program.stdin), Readable.toWeb(program.stdout))
  : createWebSocketStream(agent[0], { WebSocket: (await import("ws")).WebSocket, headers: token() });

function token() {
  const file = process.env.APP_SERVER_TOKEN_FILE;
  return file ? { Authorization: `Bearer ${readFileSync(file, "utf8").trim()}` } : {};
}

const found = { asked: [], kinds: [], text: "" };
const { agent: methods, client: ours } = acp.methods;
const client = acp
  .client({ name: "sdk" })
  .onRequest(ours.session.requestPermission, ({ params }) => {
    found.asked.push(params.toolCall.title);
    const allowed = params.options.find((option) => option.kind === "allow_once");
    return { outcome: { outcome: "selected", optionId: allowed.optionId } };
  })
  .onNotification(ours.session.update, ({ params: { update } }) => {
    found.kinds.push(update.sessionUpdate);
    if (update.sessionUpdate === "agent_message_chunk") found.text += update.content.text;
  });

await client.connectWith(stream, async (context) => {
  const hello = await context.request(methods.initialize, {
    protocolVersion: acp.PROTOCOL_VERSION,
    clientCapabilities: {},
    clientInfo: { name: "sdk", version: "1" },
  });
  const { sessionId } = await context.request(methods.session.new, { cwd: folder, mcpServers: [] });
  const prompt = [{ type: "text", text: question }];
  const { stopReason } = await context.request(methods.session.prompt, { sessionId, prompt });
  const asked = { ...found, kinds: [...new Set(found.kinds)] };
  found.text = "";
  await context.request(methods.session.close, { sessionId });
  await context.request(methods.session.load, { sessionId, cwd: folder, mcpServers: [] });
  const { sessions } = await context.request(methods.session.list, { cwd: folder });
  console.log(
    JSON.stringify({
      ...asked,
      agent: hello.agentInfo.name,
      stopReason,
      loaded: found.text,
      listed: sessions.length === 1 && sessions[0].sessionId === sessionId,
    }),
  );
});
program?.stdin.end();
