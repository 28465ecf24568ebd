// A client in TypeScript, compiled against the generated types; see .ci/clients.
import type {
  ClientRequests,
  JSONRPCErrorError,
  ServerNotification,
  ServerNotifications,
  ServerRequests,
  ThreadItem,
  v2,
} from "./generated/index";

type Method = keyof ClientRequests;
type Call = <M extends Method>(
  method: M,
  params: ClientRequests[M]["params"],
) => Promise<ClientRequests[M]["result"]>;

export async function ask(call: Call, text: string): Promise<string[]> {
  await call("initialize", { clientInfo: { name: "sample", version: "1" } });
  const started = await call("thread/start", { cwd: "/tmp", approvalPolicy: "never" });
  const params: v2.TurnStartParams = {
    threadId: started.thread.id,
    input: [{ type: "text", text }, { type: "image", url: "data:image/png;base64,AAAA" }],
  };
  const { turn } = await call("turn/start", params);
  const page = await call("thread/list", { limit: 10 });
  const names: Array<string | null> = page.data.map((thread) => thread.name);
  return [turn.id, ...names.map((name) => name ?? "unnamed")];
}

export function show(item: ThreadItem): string {
  switch (item.type) {
    case "agentMessage":
      return item.text;
    case "mcpToolCall":
      return `${item.server}.${item.tool}: ${item.error?.message ?? "done"}`;
    default:
      return item.id;
  }
}

export function hear(message: ServerNotification): string | undefined {
  if (message.method === "item/agentMessage/delta") return message.params.delta;
  if (message.method === "turn/completed") return message.params.turn.status;
  return undefined;
}

export const listeners: { [M in keyof ServerNotifications]?: (params: ServerNotifications[M]) => void } = {
  "thread/started": ({ thread }) => console.log(thread.id, thread.status.type),
};

type Ask = ServerRequests["mcpServer/elicitation/request"];
export function answer(question: Ask["params"]): Ask["result"] {
  return { action: question.mode === "form" ? "accept" : "decline", content: {}, _meta: null };
}

export function explain(error: JSONRPCErrorError): string {
  return `${error.code}: ${error.message}`;
}
