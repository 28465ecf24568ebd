// A message, or an item of a turn, in one line.

import { duration, oneLine } from "/js/core/format.js";

const ITEM_TEXT = {
  userMessage: (item) =>
    (item.content ?? []).map((part) => part.text ?? `[${part.type}]`).join(" "),
  agentMessage: (item) => item.text,
  plan: (item) => item.text,
  reasoning: (item) => (item.summary ?? []).join(" "),
  commandExecution: (item) => `${item.command}${exit(item)}`,
  fileChange: (item) => (item.changes ?? []).map((change) => change.path).join(", "),
  mcpToolCall: (item) => `${item.server}.${item.tool}${failure(item)}`,
  dynamicToolCall: (item) => `${item.tool}`,
  webSearch: (item) => item.query,
  imageView: (item) => item.path,
};

/** What an item says or does. */
export function itemText(item) {
  const text = ITEM_TEXT[item.type]?.(item) ?? "";
  return text ?? "";
}

/** What came out of an item: the output of a command, the texts that a tool returned. */
export function itemOutput(item) {
  if (item.type === "commandExecution") return item.aggregatedOutput ?? "";
  const content = item.result?.content ?? item.contentItems ?? [];
  return content.map((part) => part.text ?? `[${part.type}]`).join("\n");
}

const PARAMS_TEXT = {
  initialize: (params) => params.clientInfo?.name,
  "item/started": (params) => itemSummary(params.item),
  "item/completed": (params) => itemSummary(params.item),
  "turn/start": (params) => itemText({ type: "userMessage", content: params.input }),
  "turn/steer": (params) => itemText({ type: "userMessage", content: params.input }),
  "turn/completed": (params) => turnSummary(params.turn),
  "thread/status/changed": (params) => statusText(params.status),
  "thread/tokenUsage/updated": (params) => `${params.tokenUsage.total.totalTokens} tokens`,
  "thread/name/updated": (params) => params.threadName ?? params.name,
  "mcpServer/startupStatus/updated": (params) => `${params.name} ${params.status}`,
  "mcpServer/tool/call": (params) => `${params.server}.${params.tool}`,
  "signal/updated": (params) => `${params.receipt.stage} ${params.receipt.signalId}`,
  "signal/deliver": (params) => params.signal.summary,
  "item/commandExecution/requestApproval": (params) => params.command ?? params.reason,
  "item/fileChange/requestApproval": (params) => params.reason ?? "changes of files",
  "mcpServer/elicitation/request": (params) =>
    `${params.serverName}: ${params.message ?? params.title}`,
  "item/tool/requestUserInput": (params) => params.questions?.[0]?.question,
  warning: (params) => params.message,
  configWarning: (params) => params.summary,
  error: (params) => params.error?.message,
};

/** The line of a message in a list. */
export function messageSummary(entry) {
  const { message } = entry;
  if (message.error !== undefined) return oneLine(`${message.error.code} ${message.error.message}`);
  if (message.method === undefined) return oneLine(resultText(message.result));
  const params = message.params ?? {};
  const text = PARAMS_TEXT[message.method]?.(params) ?? params.delta ?? "";
  return oneLine(String(text));
}

/** What a status of a thread says. */
export function statusText(status) {
  if (status?.type !== "active")
    return { notLoaded: "not loaded", systemError: "error" }[status?.type] ?? "idle";
  const flags = {
    waitingOnApproval: "waits for approval",
    waitingOnUserInput: "waits for an answer",
  };
  return status.activeFlags.map((flag) => flags[flag] ?? flag)[0] ?? "running";
}

function itemSummary(item) {
  return `${item.type} ${itemText(item)}`;
}

function turnSummary(turn) {
  const time =
    turn.durationMs === null || turn.durationMs === undefined
      ? ""
      : ` in ${duration(turn.durationMs)}`;
  return `${turn.status}${time}${turn.error ? `: ${turn.error.message}` : ""}`;
}

function resultText(result) {
  if (result === null || typeof result !== "object") return String(result ?? "");
  if (result.decision !== undefined) return JSON.stringify(result.decision);
  if (result.action !== undefined) return result.action;
  const names = Object.keys(result);
  return names.length === 0 ? "" : names.join(", ");
}

function exit(item) {
  return item.exitCode === null || item.exitCode === undefined ? "" : ` → exit ${item.exitCode}`;
}

function failure(item) {
  return item.error ? ` → ${item.error.message}` : "";
}
