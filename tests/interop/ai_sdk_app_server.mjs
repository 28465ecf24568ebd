// The AI SDK with `ai-sdk-provider-codex-app-server`: node ai_sdk_app_server.mjs PROGRAM FOLDER HOME. Prints what it learned as one JSON object.
import { generateText, streamText } from "ai";
import { createCodexAppServer } from "ai-sdk-provider-codex-app-server";

const [codexPath, cwd, home] = process.argv.slice(2);
const sessions = [];
const settings = {
  codexPath,
  cwd,
  env: { CODEX_HOME: home },
  logger: false,
  threadMode: "persistent",
  onSessionCreated: (session) => sessions.push(session),
};
const provider = createCodexAppServer({ defaultSettings: settings });
const model = provider("scripted");

const first = await generateText({ model, prompt: "Hello." });
const second = streamText({ model, prompt: "Again." });
const pieces = [];
for await (const piece of second.textStream) pieces.push(piece);
const tools = await generateText({ model, prompt: "Run it." });
await model.dispose?.();
await provider.close?.();

console.log(
  JSON.stringify({
    texts: [first.text, pieces.join(""), tools.text],
    threads: [...new Set(sessions.map((session) => session.threadId))].length,
    usage: first.usage.totalTokens,
    calls: tools.steps.flatMap((step) => step.toolCalls).map((call) => call.toolName),
  }),
);
process.exit(0);
