// A question of the server as a card: what it is about, and how to answer it.

import { h } from "/js/core/dom.js";
import { commandQuestion } from "/js/requests/command.js";
import { elicitationQuestion } from "/js/requests/elicitation.js";
import { fileQuestion } from "/js/requests/file_change.js";
import { anyQuestion } from "/js/requests/any_question.js";
import { permissionsQuestion } from "/js/requests/permissions.js";
import { userInputQuestion } from "/js/requests/user_input.js";
import { titleOf } from "/js/threads/thread_list.js";
import { age } from "/js/widgets/age.js";

// Each makes {title, content} of a question; `answer(result)` and `refuse(error)` settle it.
const KINDS = {
  "item/commandExecution/requestApproval": commandQuestion,
  "item/fileChange/requestApproval": fileQuestion,
  "item/permissions/requestApproval": permissionsQuestion,
  "item/tool/requestUserInput": userInputQuestion,
  "mcpServer/elicitation/request": elicitationQuestion,
};

/** `app` has the stores; with `linksThread` the card says which thread asks. */
export function questionCard(app, question, { linksThread = false } = {}) {
  const make = KINDS[question.method] ?? anyQuestion;
  const answer = (result) => app.questions.answer(question, result);
  const refuse = (error) => app.questions.refuse(question, error);
  const { title, content } = make(question, { answer, refuse, threads: app.threads });
  const threadId = question.params?.threadId;
  return h(
    "article.question",
    { "aria-label": title, tabindex: -1 },
    h(
      "header",
      null,
      h("h2", null, title),
      h(
        "span.row.muted",
        null,
        h("code", null, question.method),
        age(question.at, question.isExact),
      ),
    ),
    linksThread && threadId ? threadLine(app, threadId) : null,
    content,
  );
}

// Whose question it is.
function threadLine(app, threadId) {
  const thread = app.threads.threads.get(threadId);
  return h(
    "p.nowrap",
    null,
    h("a", { href: `#/threads/${threadId}` }, thread ? titleOf(thread) : "Open thread"),
    thread && h("span.muted", null, ` · ${thread.cwd}`),
  );
}
