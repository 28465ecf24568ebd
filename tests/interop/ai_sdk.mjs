// The AI SDK with `ai-sdk-provider-codex-cli`: node ai_sdk.mjs PROGRAM FOLDER HOME. Prints what it learned as one JSON object.
import { generateText, streamText } from "ai";
import { createCodexAppServer } from "ai-sdk-provider-codex-cli";

const [codexPath, cwd, home] = process.argv.slice(2);
const defaultSettings = { codexPath, cwd, env: { CODEX_HOME: home }, autoApprove: false };
const provider = createCodexAppServer({ defaultSettings });
const model = provider("scripted");
const options = (values) => ({ "codex-app-server": values });

const first = await generateText({
  model,
  prompt: "Hello.",
  providerOptions: options({ threadMode: "persistent" }),
});
const { threadId } = first.providerMetadata["codex-app-server"];

const second = streamText({ model, prompt: "Again.", providerOptions: options({ threadId }) });
const pieces = [];
for await (const piece of second.textStream) pieces.push(piece);

const tools = await generateText({ model, prompt: "Run it." });
const { models } = await provider.listModels();
await provider.close();

console.log(
  JSON.stringify({
    texts: [first.text, pieces.join(""), tools.text],
    pieces: pieces.length,
    threadId,
    usage: first.usage.totalTokens,
    calls: tools.steps.flatMap((step) => step.toolCalls).map((call) => call.toolName),
    models: models.map((each) => each.id),
  }),
);
