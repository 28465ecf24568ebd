// What a command printed: its colours and styles, without what only moves a cursor; long output is folded.

import { Component, html } from "/js/core/html.js";
import { createAnsiSequenceParser } from "/vendor/ansi-sequence-parser.js";

const FOLDED_LINES = 16;
/** Characters of which colours are read; what is before them is shown without. */
const MAX_COLOURED = 256 * 1024;
// eslint-disable-next-line no-control-regex
const NOT_STYLE =
  /\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b\[[0-?]*[ -/]*[@-ln-~]|\x1b[@-Z\\^_=>78]|[\x00-\x08\x0b\x0c\x0e-\x1a]/g;

/** `text` as it was printed. Folded, its last lines are shown: there a failure is. */
export class Terminal extends Component {
  state = { whole: false };

  render({ text, label = "Output" }, { whole }) {
    const lines = shownLines(text);
    const folds = lines.length > FOLDED_LINES + 4;
    const shown = folds && !whole ? lines.slice(-FOLDED_LINES) : lines;
    return html`<div class="terminal">
      ${folds && html`<${FoldButton} whole=${whole} lines=${lines.length} part="last ${FOLDED_LINES}" onclick=${() => this.setState({ whole: !whole })} />`}
      <pre tabindex="0" aria-label=${label}>${styled(shown.join("\n"))}</pre>
    </div>`;
  }
}

/** The button that shows all lines of a text, or a part of them. */
export function FoldButton({ whole, lines, part, onclick }) {
  const label = whole ? `Show the ${part} lines` : `Show all ${lines.toLocaleString("en")} lines`;
  return html`<button type="button" class="plain fold" aria-expanded=${whole} onclick=${onclick}>
    ${label}
  </button>`;
}

// A carriage return begins a line anew: of a progress bar the last state is what one would see.
function shownLines(text) {
  return text
    .replaceAll(NOT_STYLE, "")
    .replace(/\n$/, "")
    .split("\n")
    .map((line) => {
      const ended = line.replace(/\r+$/, "");
      return ended.slice(ended.lastIndexOf("\r") + 1);
    });
}

function styled(text) {
  if (!text.includes("\x1b")) return text;
  const from = Math.max(0, text.length - MAX_COLOURED);
  const spans = createAnsiSequenceParser().parse(text.slice(from));
  return [from > 0 && text.slice(0, from), ...spans.map(span)];
}

function span({ value, foreground, background, decorations }) {
  const reversed = decorations.has("reverse");
  const front = colour(reversed ? background : foreground);
  const back = colour(reversed ? foreground : background);
  const looks = [front && `ansi-${front}`, ...decorations];
  // On a colour of the program's own a text may not be readable: the edge alone is coloured.
  if (back || reversed) looks.push("ansi-marked", back && `ansi-${back}-edge`);
  if (foreground === null && background === null && decorations.size === 0) return value;
  return html`<span class=${looks.filter(Boolean).join(" ")}>${value}</span>`;
}

const NAMES = {
  red: "red",
  green: "green",
  yellow: "yellow",
  blue: "blue",
  magenta: "magenta",
  cyan: "cyan",
  black: "faint",
  white: "",
};

// One of the page's colours, which can be read in light and dark: of others the one with the nearest hue.
function colour(value) {
  if (value === null) return "";
  if (value.type === "named") return NAMES[value.name.replace("bright", "").toLowerCase()] ?? "";
  return nearest(value.type === "rgb" ? value.rgb : ofTable(value.index));
}

const SIXTEEN = "black red green yellow blue magenta cyan white".split(" ");
const STEPS = [0, 95, 135, 175, 215, 255];

function ofTable(index) {
  if (index < 16) return SIXTEEN[index % 8];
  if (index > 231) return [128, 128, 128];
  const cube = index - 16;
  return [STEPS[Math.floor(cube / 36)], STEPS[Math.floor(cube / 6) % 6], STEPS[cube % 6]];
}

function nearest(rgb) {
  if (typeof rgb === "string") return NAMES[rgb];
  const [red, green, blue] = rgb;
  const most = Math.max(red, green, blue);
  const spread = most - Math.min(red, green, blue);
  if (spread < 40) return most < 100 ? "faint" : "";
  const near = (part) => most - part < spread / 2;
  if (near(red) && near(green)) return "yellow";
  if (near(red) && near(blue)) return "magenta";
  if (near(green) && near(blue)) return "cyan";
  return near(red) ? "red" : near(green) ? "green" : "blue";
}
