// The change of one file as its diff, with the numbers of lines before and after.

import { Component, html } from "/js/core/html.js";
import { FoldButton } from "/js/transcript/terminal.js";
import { parsePatch } from "/vendor/diff.js";

const FOLDED_LINES = 60;
/** Lines of one file that are shown at most. */
export const MAX_LINES = 5000;
const LOOKS = { "+": "add", "-": "remove" };

/** `change` is one of an item `fileChange`: {path, kind, diff}. */
export class Patch extends Component {
  state = { whole: false };

  render({ change }, { whole }) {
    const rows = rowsOf(change);
    const folds = rows.length > FOLDED_LINES + 10;
    const shown = rows.slice(0, folds && !whole ? FOLDED_LINES : MAX_LINES);
    const added = rows.filter(({ sign }) => sign === "+").length;
    const removed = rows.filter(({ sign }) => sign === "-").length;
    const kind = change.kind?.type ?? change.kind;
    const moved = change.kind?.move_path;
    return html`<div class="patch" role="group" aria-label=${`Diff of ${change.path}`}>
      <div class="row">
        <code class="grow nowrap" title=${change.path}
          >${change.path}${moved ? ` → ${moved}` : ""}</code
        >
        <span class="added">+${added}</span><span class="removed">−${removed}</span>
        <span class="tag">${kind}</span>
      </div>
      <div class="diff" tabindex="0" role="group" aria-label=${`Lines of ${change.path}`}>
        <table>
          <tbody>
            ${shown.map(line)}
          </tbody>
        </table>
      </div>
      ${folds && html`<${FoldButton} whole=${whole} lines=${rows.length} part="first ${FOLDED_LINES}" onclick=${() => this.setState({ whole: !whole })} />`}
      ${rows.length > MAX_LINES && whole && html`<p class="muted">${rows.length - MAX_LINES} more lines are not shown.</p>`}
    </div>`;
  }
}

function line({ sign, before, after, text }) {
  if (sign === "@") {
    return html`<tr class="place">
      <td colspan="4">${text}</td>
    </tr>`;
  }
  return html`<tr class=${LOOKS[sign] ?? ""}>
    <td class="number">${before}</td>
    <td class="number">${after}</td>
    <td class="sign">${sign}</td>
    <td class="text">${text}</td>
  </tr>`;
}

// A file that is new, or goes, comes as its content.
function rowsOf({ kind, diff }) {
  const sign = { add: "+", delete: "-" }[kind?.type];
  if (sign !== undefined) return contentRows(diff ?? "", sign);
  try {
    return parsePatch(diff ?? "").flatMap(({ hunks }) => hunks.flatMap(hunkRows));
  } catch {
    // No unified diff, or not yet a whole one.
    return contentRows(diff, "");
  }
}

function contentRows(text, sign) {
  const lines = text.replace(/\n$/, "").split("\n");
  return lines.map((text, index) => ({
    sign,
    before: sign === "+" ? "" : index + 1,
    after: sign === "-" ? "" : index + 1,
    text,
  }));
}

function hunkRows({ oldStart, oldLines, newStart, newLines, lines }) {
  const place = `@@ -${oldStart},${oldLines} +${newStart},${newLines} @@`;
  /** @type {any[]} */
  const rows = [{ sign: "@", before: "", after: "", text: place }];
  let before = oldStart;
  let after = newStart;
  for (const text of lines) {
    const sign = text[0] ?? " ";
    if (sign === "\\") rows.push({ sign: "", before: "", after: "", text });
    else {
      rows.push({
        sign,
        before: sign === "+" ? "" : before++,
        after: sign === "-" ? "" : after++,
        text: text.slice(1),
      });
    }
  }
  return rows;
}
