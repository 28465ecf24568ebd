// What a question of the server asks, and how it was answered, each as one text.

import { WORDS } from "/js/requests/decisions.js";

/** What is asked. */
export function questionText({ method, params }) {
  if (method === "item/commandExecution/requestApproval")
    return `Run this command? ${params.command ?? params.reason ?? ""}`;
  if (method === "item/fileChange/requestApproval")
    return `Change these files? ${params.reason ?? ""}`;
  if (method === "item/permissions/requestApproval")
    return `Grant these permissions? ${params.reason ?? ""}`;
  if (method === "item/tool/requestUserInput")
    return params.questions.map(({ question }) => question).join("\n");
  if (method === "mcpServer/elicitation/request")
    return `${params.serverName}: ${params.message ?? ""}`;
  return method;
}

/** How it was settled; `outcome` is {answer}, {error} or {} if another client did. */
export function answerText({ params }, { answer, error }) {
  if (error !== undefined) return error.message;
  if (answer === undefined) return "given in another client, or not needed any more";
  if (answer.answers !== undefined)
    return Object.values(answer.answers)
      .map(({ answers }, index) =>
        params.questions?.[index]?.isSecret ? "(secret)" : answers.join(", "),
      )
      .join("\n");
  if (typeof answer.decision === "string") return WORDS[answer.decision]?.label ?? answer.decision;
  if (answer.action !== undefined)
    return [
      answer.action,
      answer.content && Object.keys(answer.content).length > 0 && JSON.stringify(answer.content),
    ]
      .filter(Boolean)
      .join(" ");
  return JSON.stringify(answer.decision ?? answer);
}
