// What the turns of a thread have used, one below the other: tokens, cost, and the time of models and tools.

import { html } from "/js/core/html.js";
import { clock, duration } from "/js/core/format.js";
import { startOf } from "/js/transcript/entry.js";

/** `known` is what the page knows of the thread; `threadId` is for links to its turns. */
export function ThreadUsage({ known, threadId }) {
  const rows = [...(known?.usage ?? [])];
  if (rows.length === 0) {
    return html`<div class="empty">
      <strong>No usage is known</strong>
      <p>
        The server says what a turn has used when it has ended. Other servers than this one do not
        have the figures of turns.
      </p>
    </div>`;
  }
  const most = Math.max(
    ...rows.map(([, { inputTokens, outputTokens }]) => inputTokens + outputTokens),
    1,
  );
  const sum = (name) => rows.reduce((total, [, usage]) => total + usage[name], 0);
  return html`<div class="table" tabindex="0" role="group" aria-label="Usage of the turns">
    <table>
      <thead>
        <tr>
          <th scope="col">Turn</th>
          <th scope="col" class="number">Tokens in</th>
          <th scope="col" class="number">of these cached</th>
          <th scope="col" class="number">Tokens out</th>
          <th scope="col">Share of the largest</th>
          <th scope="col" class="number">Cost</th>
          <th scope="col" class="number">Models</th>
          <th scope="col" class="number">Tools</th>
        </tr>
      </thead>
      <tbody>
        ${rows.map(([id, usage], index) => {
          const turn = known.transcript.turnOf(id);
          const began = turn && startOf(turn);
          const tokens = usage.inputTokens + usage.outputTokens;
          return html`<tr key=${id}>
            <td>
              <a href=${`#/threads/${threadId}/at/${id}`}
                >${index + 1}${began ? `, ${clock(began).slice(0, 8)}` : ""}</a
              >
            </td>
            <td class="number">${number(usage.inputTokens)}</td>
            <td class="number">${number(usage.cachedInputTokens)}</td>
            <td class="number">${number(usage.outputTokens)}</td>
            <td class="share">
              <span class="track"
                ><span
                  class="bar-part model"
                  style=${{ left: "0", width: `${(100 * tokens) / most}%` }}
                ></span
              ></span>
            </td>
            <td class="number">${costOf(usage)}</td>
            <td class="number">${duration(usage.modelMs)}</td>
            <td class="number">${duration(usage.toolMs)}</td>
          </tr>`;
        })}
      </tbody>
      <tfoot>
        <tr>
          <th scope="row">All ${rows.length}</th>
          <td class="number">${number(sum("inputTokens"))}</td>
          <td class="number">${number(sum("cachedInputTokens"))}</td>
          <td class="number">${number(sum("outputTokens"))}</td>
          <td></td>
          <td class="number">${costOf(known.usageTotal)}</td>
          <td class="number">${duration(sum("modelMs"))}</td>
          <td class="number">${duration(sum("toolMs"))}</td>
        </tr>
      </tfoot>
    </table>
  </div>`;
}

function costOf({ cost, unpricedTokens }) {
  const sums = cost.map(({ amount, currency }) => `${amount} ${currency}`);
  if (unpricedTokens > 0) sums.push(`${number(unpricedTokens)} tokens without a price`);
  return sums.join(", ") || "–";
}

function number(value) {
  return value.toLocaleString("en");
}
