// Where the time of a turn went: bars of the model, tools, commands, a person and compaction on one axis.

import { html } from "/js/core/html.js";
import { clock, duration } from "/js/core/format.js";
import { textOf } from "/js/transcript/items.js";

const LANES = {
  model: "Model",
  tools: "Tools",
  commands: "Commands",
  person: "Waiting for a person",
  compaction: "Compaction",
};

const LANE_OF = {
  commandExecution: "commands",
  fileChange: "commands",
  mcpToolCall: "tools",
  dynamicToolCall: "tools",
  collabAgentToolCall: "tools",
  webSearch: "tools",
  imageGeneration: "tools",
  sleep: "tools",
  question: "person",
  contextCompaction: "compaction",
};

/**
 * The bars of a turn: {begin, end, lanes}, where lanes have {name, title, ms, bars}, and bars {from, to, key, text}.
 * Null if nothing is known of its times. What is in no other lane is the model's, with the server's own time.
 */
export function timesOf(turn, now) {
  const entries = turn.entries.slice(1).filter(({ item }) => began(item));
  if (entries.length === 0) return null;
  const begin = Math.min(...entries.map(({ item }) => began(item)));
  const isRunning = turn.status === "inProgress";
  const last = Math.max(...entries.map(({ item }) => ended(item) ?? began(item)));
  const end = isRunning ? now : Math.max(last, begin + (turn.durationMs ?? 0));
  if (end <= begin) return null;
  const bars = entries.flatMap((entry) => barOf(entry, isRunning ? end : null));
  const lanes = Object.keys(LANES).map((name) => {
    const own = name === "model" ? gaps(bars, begin, end) : bars.filter((bar) => bar.lane === name);
    return { name, title: LANES[name], ms: covered(own), bars: own };
  });
  return { begin, end, lanes: lanes.filter(({ bars }) => bars.length > 0) };
}

/** The view of a turn's times, folded to what each took. */
export function TurnTimes({ turn, go }) {
  const times = timesOf(turn, Date.now());
  if (times === null) return null;
  const { begin, end, lanes } = times;
  const share = (ms) => `${Math.round((100 * ms) / (end - begin))} %`;
  const sums = lanes.map(({ title, ms }) => `${title} ${duration(ms)} (${share(ms)})`);
  return html`<details class="fold-part times">
    <summary>${sums.join(" · ")}</summary>
    <div class="lanes">
      ${lanes.map((lane) => html`<${Lane} ...${lane} begin=${begin} end=${end} go=${go} />`)}
      <div class="lane axis" aria-hidden="true">
        <span></span>
        <span class="ticks">
          ${[0, 0.25, 0.5, 0.75, 1].map((part) => html`<span>${duration((end - begin) * part)}</span>`)}
        </span>
      </div>
    </div>
  </details>`;
}

function Lane({ name, title, ms, bars, begin, end, go }) {
  const place = (at) => `${((100 * (at - begin)) / (end - begin)).toFixed(3)}%`;
  const label = `${title}: ${bars.length} times, together ${duration(ms)}`;
  return html`<div class="lane">
    <span class="nowrap" title=${title}>${title}</span>
    <span class="track" role="img" aria-label=${label}>
      ${bars.map(
        ({ from, to, key, text }) =>
          html`<span
            class=${`bar-part ${name}`}
            style=${{ left: place(from), right: `calc(100% - ${place(to)})` }}
            title=${`${text}\n${clock(from)} to ${clock(to)}, ${duration(to - from)}`}
            onclick=${key && (() => go(key))}
          />`,
      )}
    </span>
  </div>`;
}

function began(item) {
  return item.type === "question" ? item.question.at : item.startedAtMs;
}

function ended(item) {
  return item.type === "question" ? item.settledAt : item.completedAtMs;
}

function barOf(entry, now) {
  const lane = LANE_OF[entry.type];
  const to = ended(entry.item) ?? now;
  if (lane === undefined || to === null) return [];
  const text = textOf(entry).slice(0, 120);
  return [{ lane, from: began(entry.item), to, key: entry.key, text }];
}

// What no bar covers.
function gaps(bars, begin, end) {
  const free = [];
  let at = begin;
  const add = (to) => to > at && free.push({ from: at, to, key: null, text: LANES.model });
  for (const { from, to } of [...bars].sort((one, other) => one.from - other.from)) {
    add(Math.min(from, end));
    at = Math.max(at, to);
  }
  add(end);
  return free;
}

// How long at least one of them lasted.
function covered(bars) {
  let sum = 0;
  let at = -Infinity;
  for (const { from, to } of [...bars].sort((one, other) => one.from - other.from)) {
    sum += Math.max(0, to - Math.max(from, at));
    at = Math.max(at, to);
  }
  return sum;
}
