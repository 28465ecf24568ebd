// An extension of VS Code: the command "App Server: Ask" runs a turn and shows it in an output channel; the user is
// asked before a command is run or files are changed. Compiled by .ci/clients, clicked through by vscode.py.
import * as vscode from "vscode";
import { connect, type Connection } from "./connection.mts";

let output: vscode.OutputChannel;
let conversation: Promise<{ connection: Connection; threadId: string }> | undefined;

export function activate(context: vscode.ExtensionContext) {
  output = vscode.window.createOutputChannel("App Server");
  context.subscriptions.push(output, vscode.commands.registerCommand("appServer.ask", ask));
}

export async function deactivate() {
  (await conversation)?.connection.end();
}

async function ask() {
  const question = await vscode.window.showInputBox({ prompt: "What should the agent do?" });
  if (!question) return;
  output.show(true);
  output.appendLine(`> ${question}`);
  try {
    const { connection, threadId } = await (conversation ??= begin());
    await connection.call("turn/start", { threadId, input: [{ type: "text", text: question }] });
  } catch (error) {
    conversation = undefined;
    void vscode.window.showErrorMessage(`App Server: ${(error as Error).message}`);
  }
}

/** Connects, and starts one thread in the folder of the window: later questions go on with it. */
async function begin() {
  const settings = vscode.workspace.getConfiguration("appServer");
  const url = settings.get("url", "ws://127.0.0.1:4500");
  const connection = await connect(url, "vscode-sample", settings.get<string>("tokenFile"));
  connection.closed(() => (conversation = undefined));
  connection.hear("item/agentMessage/delta", ({ delta }) => output.append(delta));
  connection.hear("error", ({ error }) => output.appendLine(error.message));
  connection.hear("turn/completed", ({ turn }) => output.appendLine(`\n[${turn.status}]`));
  connection.answer("item/commandExecution/requestApproval", ({ command, reason }) =>
    decide(`Run ${command ?? "it"}?`, reason),
  );
  connection.answer("item/fileChange/requestApproval", ({ reason }) => decide("Change files?", reason));
  const { thread } = await connection.call("thread/start", { cwd: vscode.workspace.workspaceFolders?.[0]?.uri.fsPath });
  return { connection, threadId: thread.id };
}

/** Asks in a dialog, as a message in the corner goes away after some seconds. Cancel declines. */
async function decide(question: string, reason: string | null): Promise<{ decision: "accept" | "decline" }> {
  const options = { modal: true, detail: reason ?? undefined };
  const choice = await vscode.window.showInformationMessage(question, options, "Allow");
  return { decision: choice === "Allow" ? "accept" : "decline" };
}
