// The way of a signal as a row of stages. Source: docs/signals.md, "Stages".

import { h } from "/js/core/dom.js";

const WAY = ["accepted", "inHistory", "seen", "answered"];
const NAMES = { accepted: "accepted", inHistory: "in history", seen: "seen", answered: "answered" };
const ENDS = { expired: "expired", recalled: "recalled", failed: "failed" };

/** Make the row; a signal that ended early shows that in place of the rest. */
export function stagesOf(receipt) {
  const end = ENDS[receipt.stage];
  const reached = end === undefined ? WAY.indexOf(receipt.stage) : receipt.itemId ? 1 : 0;
  const stages = WAY.slice(0, end === undefined ? WAY.length : reached + 1).map((stage, index) =>
    h(
      index <= reached ? "li.reached" : "li",
      { "aria-current": stage === receipt.stage ? "step" : null },
      NAMES[stage],
    ),
  );
  if (end !== undefined) stages.push(h("li.reached.ended", { "aria-current": "step" }, end));
  return h("ol.stages", { "aria-label": `Stage: ${end ?? NAMES[receipt.stage]}` }, stages);
}

/** Whether no model has seen the signal, so that it can be recalled. */
export function canRecall(receipt) {
  return receipt.stage === "accepted" || receipt.stage === "inHistory";
}
