// Asks an app-server one question and writes the answer as it comes: node client.mts ws://127.0.0.1:4500 QUESTION
// Checked and run by .ci/clients.
import { connect } from "./connection.mts";

const [url = "ws://127.0.0.1:4500", question = "Hello there."] = process.argv.slice(2);
const connection = await connect(url, "sample", process.env.APP_SERVER_TOKEN_FILE);

connection.answer("item/commandExecution/requestApproval", async () => ({ decision: "decline" }));
connection.hear("item/agentMessage/delta", ({ delta }) => process.stdout.write(delta));
connection.hear("turn/completed", ({ turn }) => {
  console.log(`\n[${turn.status}]`);
  connection.end();
});
const { thread } = await connection.call("thread/start", { cwd: process.cwd() });
await connection.call("turn/start", { threadId: thread.id, input: [{ type: "text", text: question }] });
