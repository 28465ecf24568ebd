// The model's own questions: choices, and texts of one's own.

import { h } from "/js/core/dom.js";

let groups = 0;

export function userInputQuestion({ params }, { answer }) {
  const parts = params.questions.map(onePart);
  const submit = (event) => {
    event.preventDefault();
    answer({
      answers: Object.fromEntries(parts.map((part) => [part.id, { answers: part.read() }])),
    });
  };
  return {
    title: params.questions.length === 1 ? params.questions[0].header || "A question" : "Questions",
    content: h(
      "form.form",
      { onsubmit: submit },
      parts.map((part) => part.element),
      h(".actions", null, h("button.primary", { type: "submit" }, "Answer")),
    ),
  };
}

function onePart({ id, question, options, isOther, isSecret }) {
  const group = `question-${++groups}`;
  const choices = (options ?? []).map(({ label, description }) => {
    const input = h("input", { type: "radio", name: group, value: label });
    const text = h(
      "span",
      null,
      label,
      description ? h("span.muted", null, ` – ${description}`) : null,
    );
    return { input, element: h("label.check", null, input, text) };
  });
  const free = options === null || options === undefined || isOther;
  const own = free
    ? h("input", {
        type: isSecret ? "password" : "text",
        "aria-label": choices.length ? "Another answer" : question,
      })
    : null;
  if (own && choices.length > 0) own.placeholder = "Another answer";
  return {
    id,
    element: h(
      "fieldset.field",
      null,
      h("legend.label", null, question),
      choices.map(({ element }) => element),
      own,
    ),
    read: () => {
      if (own?.value) return [own.value];
      return choices.filter(({ input }) => input.checked).map(({ input }) => input.value);
    },
  };
}
