// `@openai/codex-sdk`: node codex_sdk.mjs PROGRAM FOLDER HOME URL, with a model at URL. Prints two turns of a thread as one JSON object.
import { Codex } from "@openai/codex-sdk";

const [codexPathOverride, workingDirectory, home, baseUrl] = process.argv.slice(2);
const codex = new Codex({
  codexPathOverride,
  baseUrl,
  apiKey: "sk-of-the-sdk",
  config: { model_context_window: 100000 },
  env: { ...process.env, APP_SERVER_HOME: home },
});
const where = { workingDirectory, skipGitRepoCheck: true };
const thread = codex.startThread({
  ...where,
  model: "gpt-5.5",
  threadSource: "sdk",
  sandboxMode: "workspace-write",
  modelReasoningEffort: "high",
  networkAccessEnabled: true,
  webSearchMode: "live",
  approvalPolicy: "on-request",
  additionalDirectories: [home],
});
const outputSchema = { type: "object", properties: {}, additionalProperties: false };
const first = await thread.run("Hello.", { outputSchema });
const second = await codex.resumeThread(thread.id, where).run([
  { type: "text", text: "Look." },
  { type: "local_image", path: `${workingDirectory}/a.png` },
]);
console.log(JSON.stringify({ texts: [first.finalResponse, second.finalResponse], usage: second.usage }));
