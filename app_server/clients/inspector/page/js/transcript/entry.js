// The view of one entry of a transcript: what it is, how it went, and its content.

import { html } from "/js/core/html.js";
import { clock, duration } from "/js/core/format.js";
import { TurnTimes } from "/js/transcript/turn_times.js";
import { ITEMS, LABELS, outcomeOf } from "/js/transcript/items.js";

/** The name of an entry, for its heading and for screen readers. */
export function labelOf({ type }) {
  return type === "turn" ? "Turn" : (LABELS[type] ?? type);
}

/** Whether an entry changes while time passes. */
export function isRunning({ type, turn, item }) {
  if (turn.status !== "inProgress") return false;
  return type === "turn" || item.status === "inProgress" || (type === "question" && !item.outcome);
}

/** `actions` has {copy, link, go}; `app` is what parts of the entry may ask. */
export function Entry({ entry, app, actions }) {
  if (entry.type === "turn") return html`<${TurnHead} entry=${entry} actions=${actions} />`;
  const { item } = entry;
  const Body = ITEMS[entry.type] ?? ITEMS.unknown;
  return html`
    <header class="entry-head">
      <h3>${labelOf(entry)}</h3>
      <${Outcome} ...${outcomeOf(item)} />
      <span class="facts">${times(entry)}</span>
      <${Actions} ...${actions} />
    </header>
    <${Body} item=${item} turn=${entry.turn} app=${app} />
  `;
}

function TurnHead({ entry, actions }) {
  const { turn } = entry;
  const began = startOf(turn);
  const facts = [
    began && clock(began).slice(0, 8),
    turn.status === "inProgress" && began && `since ${duration(Date.now() - began)}`,
    turn.durationMs && `in ${duration(turn.durationMs)}`,
    ...usageFacts(turn),
  ];
  return html`
    <header class="entry-head">
      <h2>Turn</h2>
      <${Outcome} ...${outcomeOf(turn)} />
      <span class="facts">${facts.filter(Boolean).join(" · ")}</span>
      <${Actions} ...${actions} />
    </header>
    <${TurnTimes} turn=${turn} go=${actions.go} />
    ${turn.error && html`<p class="prose problem">${turn.error.message}</p>`}
  `;
}

/** Unix milliseconds at which a turn began; null if that is not known. */
export function startOf({ startedAtMs, startedAt }) {
  return startedAtMs ?? (startedAt ? startedAt * 1000 : null);
}

/** What a turn has used: tokens, and what they cost where prices are known. */
export function usageFacts({ usage, tokens }) {
  if (usage === null) return [tokens && `${number(tokens)} tokens`];
  const { inputTokens, outputTokens, cost } = usage;
  return [
    `${number(inputTokens)} tokens in, ${number(outputTokens)} out`,
    ...cost.map(({ amount, currency }) => `${amount} ${currency}`),
  ];
}

function number(value) {
  return value.toLocaleString("en");
}

function Outcome({ word, tone = "" }) {
  return word ? html`<span class=${`status ${tone}`}>${word}</span>` : null;
}

function Actions({ copy, link }) {
  return html`<span class="entry-actions">
    <button type="button" class="plain" onclick=${copy}>Copy</button>
    <button type="button" class="plain" onclick=${link}>Copy link</button>
  </span>`;
}

// When it began, and how long it took or takes.
function times(entry) {
  const { item } = entry;
  const { startedAtMs: began, completedAtMs: ended } = item;
  if (!began) return item.durationMs ? duration(item.durationMs) : "";
  const took = item.durationMs ?? (ended ? ended - began : null);
  const takes = isRunning(entry) ? Date.now() - began : null;
  const long = took ?? takes;
  return [clock(began).slice(0, 8), long !== null && long > 0 && duration(long)]
    .filter(Boolean)
    .join(" · ");
}
