// The views of the items of a turn, by their type, and the text that is copied of each.

import { Component, html } from "/js/core/html.js";
import { answerText, questionText } from "/js/requests/answers.js";
import { Image, Markdown } from "/js/transcript/markdown.js";
import { Patch } from "/js/transcript/patch.js";
import { Terminal } from "/js/transcript/terminal.js";

/** What an entry is called. */
export const LABELS = {
  userMessage: "You",
  agentMessage: "Agent",
  plan: "Plan",
  reasoning: "Reasoning",
  commandExecution: "Command",
  fileChange: "Patch",
  mcpToolCall: "Tool",
  dynamicToolCall: "Tool of a client",
  collabAgentToolCall: "Agents",
  subAgentActivity: "Agent beside",
  webSearch: "Web search",
  imageView: "Image",
  imageGeneration: "Image",
  sleep: "Sleep",
  enteredReviewMode: "Review begins",
  exitedReviewMode: "Review",
  contextCompaction: "Compaction",
  hookPrompt: "Hook",
  functionCallOutput: "Function",
  question: "Question",
  steps: "Steps",
  problem: "Problem",
};

const WORDS = {
  inProgress: ["running", "active"],
  completed: ["completed", "good"],
  failed: ["failed", "bad"],
  declined: ["declined", "bad"],
  interrupted: ["interrupted", "attention"],
};

/** How an item, or a turn, went: {word, tone}; without a word if nothing is to be said. */
export function outcomeOf(item) {
  if (item.type === "question") {
    return item.outcome ? { word: "settled", tone: "good" } : { word: "open", tone: "attention" };
  }
  if (item.type === "problem")
    return { word: item.willRetry ? "tried again" : "failed", tone: "bad" };
  const [word, tone] = WORDS[item.status] ?? [item.status];
  const code = item.exitCode;
  if (code === null || code === undefined) return { word, tone };
  return { word: `exit ${code}`, tone: code === 0 ? "good" : "bad" };
}

/** What an entry says, as the text that is copied. */
export function textOf(entry) {
  const text = TEXTS[entry.type]?.(entry.item);
  if (text !== undefined) return text;
  if (entry.type === "turn") return entry.turn.entries.slice(1).map(textOf).join("\n\n");
  return JSON.stringify(entry.item, null, 2);
}

const TEXTS = {
  userMessage: ({ content }) =>
    content.map((part) => part.text ?? part.path ?? part.url ?? `[${part.type}]`).join("\n"),
  agentMessage: ({ text }) => text,
  plan: ({ text }) => text,
  reasoning: (item) => reasoningTexts(item).join("\n\n"),
  commandExecution: ({ command, aggregatedOutput }) => `$ ${command}\n${aggregatedOutput ?? ""}`,
  fileChange: ({ changes }) => changes.map(({ path, diff }) => `${path}\n${diff}`).join("\n"),
  exitedReviewMode: ({ review }) => review,
  problem: ({ error }) => error.message,
};

/** Views by the type of the item; each has {item, turn, app}. */
export const ITEMS = {
  userMessage: ({ item, app }) =>
    item.content.map((part) => html`<${Input} part=${part} app=${app} />`),
  agentMessage: ({ item }) => html`<${Markdown} text=${item.text ?? ""} />`,
  plan: ({ item }) => html`<${Markdown} text=${item.text ?? ""} />`,
  reasoning: Reasoning,
  commandExecution: Command,
  fileChange: ({ item }) =>
    (item.changes ?? []).map((change) => html`<${Patch} change=${change} key=${change.path} />`),
  mcpToolCall: ({ item }) =>
    html`<${Call}
      name=${`${item.server}.${item.tool}`}
      item=${item}
      content=${item.result?.content}
      structured=${item.result?.structuredContent}
    />`,
  dynamicToolCall: ({ item }) =>
    html`<${Call} name=${item.tool} item=${item} content=${item.contentItems} />`,
  collabAgentToolCall: Agents,
  subAgentActivity: ({ item }) =>
    html`<p>
      ${item.kind} ${item.agentPath}
      <a href=${`#/threads/${item.agentThreadId}`}>Open its thread</a>
    </p>`,
  webSearch: ({ item }) =>
    html`<p class="prose">
      ${item.action?.queries?.join(", ") ?? item.action?.url ?? item.query}
    </p>`,
  imageView: ({ item, app }) => html`<${LocalImage} path=${item.path} app=${app} />`,
  imageGeneration: Generated,
  sleep: ({ item }) => html`<p>The model waits for ${Math.round(item.durationMs / 1000)} s.</p>`,
  enteredReviewMode: ({ item }) => html`<p class="prose">${item.review}</p>`,
  exitedReviewMode: ({ item }) => html`<${Markdown} text=${item.review} />`,
  contextCompaction: () =>
    html`<p class="muted">
      The history was condensed to make room: the model reads a summary from here on.
    </p>`,
  hookPrompt: ({ item }) => item.fragments.map(({ text }) => html`<p class="prose">${text}</p>`),
  functionCallOutput: ({ item }) =>
    html`<p><code>${item.name}</code></p>
      <${Json} label="Output" value=${item.output} />`,
  question: Question,
  steps: Steps,
  problem: ({ item }) =>
    html`<p class="prose problem">${item.error.message}</p>
      ${item.error.additionalDetails && html`<p class="prose muted">${item.error.additionalDetails}</p>`}`,
  unknown: ({ item }) => html`<${Json} label="Item" value=${item} />`,
};

function Input({ part, app }) {
  if (part.type === "text") return html`<p class="prose">${part.text}</p>`;
  if (part.type === "image" && part.url) return html`<${Image} url=${part.url} />`;
  if (part.type === "localImage") return html`<${LocalImage} path=${part.path} app=${app} />`;
  return html`<p>
    <span class="tag">${part.type}</span>
    <code>${part.name ?? part.path ?? part.url ?? part.file_id ?? ""}</code>
  </p>`;
}

function reasoningTexts({ summary, content }) {
  return summary?.length ? summary : (content ?? []);
}

function Reasoning({ item }) {
  const texts = reasoningTexts(item);
  const text = texts.join("\n\n");
  if (text === "") return html`<p class="muted">Nothing of it is shown.</p>`;
  const [first] = text
    .replaceAll(/[*#_\`]/g, "")
    .trimStart()
    .split("\n");
  return html`<details class="fold-part">
    <summary>${first.slice(0, 160)}</summary>
    <${Markdown} text=${text} />
  </details>`;
}

function Command({ item }) {
  return html`
    <pre class="command" tabindex="0" aria-label="Command line"><code>${item.command}</code></pre>
    <p class="muted nowrap" title=${item.cwd}>
      ${item.cwd}${item.source === "userShell" ? " · run by the user" : ""}
    </p>
    ${item.aggregatedOutput ? html`<${Terminal} text=${item.aggregatedOutput} />` : item.status === "completed" && html`<p class="muted">No output.</p>`}
  `;
}

function Call({ name, item, content, structured = null }) {
  return html`
    <p><code class="tool-name">${name}</code></p>
    <${Json} label="Arguments" value=${item.arguments} />
    ${item.progress && item.status === "inProgress" && html`<p class="muted" role="status">${item.progress}</p>`}
    ${item.error && html`<p class="prose problem">${item.error.message}</p>`}
    ${(content ?? []).map((part) => html`<${Content} part=${part} />`)}
    ${structured !== null && structured !== undefined && html`<${Json} label="Structured result" value=${structured} />`}
  `;
}

// A part of what a tool returned; MCP and tools of clients have their own names.
function Content({ part }) {
  if (part.text !== undefined) return html`<${Terminal} text=${part.text} label="Result" />`;
  if (part.type === "image")
    return html`<${Image} url=${`data:${part.mimeType};base64,${part.data}`} />`;
  if (part.type === "inputImage") return html`<${Image} url=${part.imageUrl} />`;
  if (part.resource?.text !== undefined)
    return html`<p><code>${part.resource.uri}</code></p>
      <${Terminal} text=${part.resource.text} label="Resource" />`;
  return html`<${Json} label=${part.type ?? "Content"} value=${part} />`;
}

/** A JSON value that is folded away. */
function Json({ label, value }) {
  const text = JSON.stringify(value, null, 2) ?? "";
  if (text === "" || text === "{}" || text === "null") return null;
  const short = JSON.stringify(value);
  if (short.length <= 100)
    return html`<p class="pair-line"><span class="muted">${label}</span> <code>${short}</code></p>`;
  return html`<details class="fold-part">
    <summary><span class="muted">${label}</span> <code>${short.slice(0, 100)}…</code></summary>
    <pre tabindex="0" aria-label=${label}>${text}</pre>
  </details>`;
}

function Agents({ item }) {
  return html`
    <p>
      <code>${item.tool}</code>${item.prompt && html` <span class="prose">${item.prompt}</span>`}
    </p>
    <ul>
      ${item.receiverThreadIds.map((id) => html`<li><a href=${`#/threads/${id}`}>${id}</a> ${item.agentsStates[id]?.status} ${item.agentsStates[id]?.message}</li>`)}
    </ul>
  `;
}

function Generated({ item, app }) {
  if (item.result)
    return html`<${Image}
      url=${`data:image/png;base64,${item.result}`}
      label=${item.revisedPrompt}
    />`;
  return html`<p class="prose">${item.revisedPrompt ?? item.status}</p>
    ${item.savedPath && html`<${LocalImage} path=${item.savedPath} app=${app} />`}`;
}

const IMAGE_TYPES = {
  png: "png",
  jpg: "jpeg",
  jpeg: "jpeg",
  gif: "gif",
  webp: "webp",
  svg: "svg+xml",
  bmp: "bmp",
  avif: "avif",
};

// An image on the server's machine is read when somebody wants to see it.
class LocalImage extends Component {
  state = { url: null, problem: null };

  async read() {
    const { path, app } = this.props;
    try {
      const { dataBase64 } = await app.connection.call("fs/readFile", { path });
      const type = IMAGE_TYPES[path.split(".").at(-1).toLowerCase()] ?? "png";
      this.setState({ url: `data:image/${type};base64,${dataBase64}`, problem: null });
    } catch (error) {
      this.setState({ problem: error.message });
    }
  }

  render({ path }, { url, problem }) {
    return html`
      <p class="row">
        <code class="nowrap" title=${path}>${path}</code>
        ${url === null && html`<button type="button" onclick=${() => this.read()}>Show the image</button>`}
      </p>
      ${problem && html`<p class="problem">${problem}</p>`}
      ${url && html`<${Image} url=${url} label=${path} />`}
    `;
  }
}

function Question({ item }) {
  return html`
    <p class="prose">${questionText(item.question)}</p>
    ${item.outcome && html`<p class="answer"><span class="muted">Answer</span> ${answerText(item.question, item.outcome)}</p>`}
  `;
}

const SIGNS = { completed: "✓", inProgress: "▸", pending: "·" };

function Steps({ item }) {
  return html`
    ${item.explanation && html`<p>${item.explanation}</p>`}
    <ul class="steps">
      ${item.plan.map(({ step, status }) => html`<li class=${status}><span aria-hidden="true">${SIGNS[status] ?? "·"}</span> ${step}<span class="visually-hidden">, ${status}</span></li>`)}
    </ul>
  `;
}
