// Markdown as elements: marked reads it, and its tokens become a view. HTML in it is shown as text, links lead only to
// web and mail addresses, and images of other places stay links: nothing of a message is loaded or run.

import { html } from "/js/core/html.js";
import { lexer } from "/vendor/marked.js";

/** Characters that are read as Markdown; longer texts are shown as they are. */
export const MAX_MARKDOWN = 200_000;
const ADDRESS = /^(https?|mailto):/i;
const IMAGE = /^data:image\/(png|jpeg|gif|webp|svg\+xml|bmp|avif)[;,]/i;

/** The view of a text. */
export function Markdown({ text }) {
  if (text.length > MAX_MARKDOWN) return html`<p class="prose">${text}</p>`;
  const tokens = lexer(text);
  // Its highest headings stand one below that of the entry, whatever their depth.
  const top = Math.min(
    ...tokens.filter(({ type }) => type === "heading").map(({ depth }) => depth),
  );
  for (const token of tokens) if (token.type === "heading") token.depth -= top - 1;
  return html`<div class="markdown">${tokens.map(block)}</div>`;
}

/** An image of a message, if it is in the message itself; else a link to it. */
export function Image({ url, label }) {
  if (IMAGE.test(url)) return html`<img src=${url} alt=${label || "Image"} />`;
  return html`<${Link} href=${url}>${label || url}<//>`;
}

function Link({ href, children }) {
  if (!ADDRESS.test(href)) return html`<span title=${href}>${children}</span>`;
  return html`<a href=${href} target="_blank" rel="noopener noreferrer">${children}</a>`;
}

// Headings of a message stand below those of the page.
const HEADINGS = { 1: "h4", 2: "h5" };

const BLOCKS = {
  space: () => null,
  hr: () => html`<hr />`,
  heading: ({ depth, tokens }) => html`<${HEADINGS[depth] ?? "h6"}>${inline(tokens)}<//>`,
  paragraph: ({ tokens }) => html`<p>${inline(tokens)}</p>`,
  text: (token) => (token.tokens ? inline(token.tokens) : plain(token.text)),
  code: ({ text, lang }) =>
    html`<pre
      tabindex="0"
      aria-label=${lang ? `Code, ${lang}` : "Code"}
    ><code>${text}</code></pre>`,
  blockquote: ({ tokens }) => html`<blockquote>${tokens.map(block)}</blockquote>`,
  list: ({ ordered, start, items }) =>
    ordered
      ? html`<ol start=${start || 1}>
          ${items.map(entry)}
        </ol>`
      : html`<ul>
          ${items.map(entry)}
        </ul>`,
  table: ({ header, rows }) =>
    html`<div class="table" tabindex="0" role="group" aria-label="Table">
      <table>
        <thead>
          <tr>
            ${header.map((cell) => html`<th scope="col">${inline(cell.tokens)}</th>`)}
          </tr>
        </thead>
        <tbody>
          ${rows.map(
            (row) =>
              html`<tr>
                ${row.map((cell) => html`<td>${inline(cell.tokens)}</td>`)}
              </tr>`,
          )}
        </tbody>
      </table>
    </div>`,
};

const INLINE = {
  text: (token) => (token.tokens ? inline(token.tokens) : plain(token.text)),
  escape: ({ text }) => text,
  strong: ({ tokens }) => html`<strong>${inline(tokens)}</strong>`,
  em: ({ tokens }) => html`<em>${inline(tokens)}</em>`,
  del: ({ tokens }) => html`<del>${inline(tokens)}</del>`,
  codespan: ({ text }) => html`<code>${text}</code>`,
  br: () => html`<br />`,
  link: ({ href, tokens }) => html`<${Link} href=${href}>${inline(tokens)}<//>`,
  image: ({ href, text }) => html`<${Image} url=${href} label=${text} />`,
  checkbox: ({ checked }) => (checked ? "☑ " : "☐ "),
};

function block(token) {
  return BLOCKS[token.type]?.(token) ?? (token.type === "space" ? null : inline([token]));
}

function inline(tokens) {
  return tokens.map((token) => (INLINE[token.type] ?? raw)(token));
}

function entry({ tokens }) {
  return html`<li>${tokens.map(block)}</li>`;
}

// What has no view of its own is shown as it was written: HTML, definitions of links.
function raw(token) {
  return token.raw;
}

// Named characters are left to the browser in HTML; here the usual ones are read.
const CHARACTERS = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'", nbsp: "\u00a0" };

function plain(text) {
  return text.replaceAll(/&(#x?[0-9a-f]+|\w+);/gi, (whole, name) => {
    if (name[0] !== "#") return CHARACTERS[name] ?? whole;
    const code = /^#x/i.test(name) ? parseInt(name.slice(2), 16) : parseInt(name.slice(1), 10);
    return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : whole;
  });
}
