// Line icons of 16 by 16, drawn with the colour of the text beside them.

import { svg } from "/js/core/dom.js";

const PATHS = {
  threads: ["M2.5 3.5h11v7h-6l-3 2.5v-2.5h-2z"],
  requests: [
    "M8 1.8a6.2 6.2 0 1 0 0 12.4A6.2 6.2 0 0 0 8 1.8",
    "M6.3 6.2a1.8 1.8 0 1 1 2.4 1.7c-.5.2-.7.5-.7 1",
    "M8 11.2v.1",
  ],
  mcp: ["M5 2v3M11 2v3M3.5 5h9v2.5a4.5 4.5 0 0 1-9 0z", "M8 12v2.5"],
  apps: ["M2.5 2.5h4.5v4.5H2.5zM9 2.5h4.5v4.5H9zM2.5 9h4.5v4.5H2.5zM9 9h4.5v4.5H9z"],
  signals: ["M8 7.6v6", "M5.4 10.2a3.6 3.6 0 1 1 5.2 0", "M3.4 12.2a6.4 6.4 0 1 1 9.2 0"],
  server: ["M2 12.5 5.4 7l2.8 3.4L11 4l3 8.5"],
  wire: ["M2 5.2h9.5M9 2.7l2.5 2.5L9 7.7M14 10.8H4.5M7 8.3l-2.5 2.5L7 13.3"],
  brand: ["M7 2.4a4.6 4.6 0 1 0 0 9.2 4.6 4.6 0 0 0 0-9.2", "M10.5 10.5 14 14M5 7h4M7 5v4"],
};

export function icon(name) {
  const paths = PATHS[name].map((d) => svg("path", { d }));
  return svg(
    "svg",
    {
      viewBox: "0 0 16 16",
      width: 16,
      height: 16,
      fill: "none",
      stroke: "currentColor",
      "stroke-width": 1.4,
      "stroke-linecap": "round",
      "stroke-linejoin": "round",
      "aria-hidden": "true",
    },
    paths,
  );
}
