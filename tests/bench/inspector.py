"""Frame times of the inspector while it scrolls through ten thousand messages.

A turn of 10,000 deltas is run, its deltas are shown as a row each, and the list is scrolled from
its beginning to its end, some rows a frame. Prints how long frames took: at 60 Hz a frame has
16.7 ms. Needs what `.ci/inspector` installs.

    python -m tests.bench.inspector [--messages N] [--rows-a-frame N]
"""

import argparse
import asyncio
import tempfile
from pathlib import Path

from tests.support.clients.inspector import inspect
from tests.support.model import ScriptedModel, says

ROW_PX = 28

SCROLL = """
async (step) => {
  const list = document.querySelector('[role="listbox"]');
  list.scrollTop = 0;
  const times = [];
  const frame = () => new Promise(requestAnimationFrame);
  let last = await frame();
  while (list.scrollTop + list.clientHeight < list.scrollHeight - 1) {
    list.scrollTop += step;
    const now = await frame();
    times.push(now - last);
    last = now;
  }
  return times;
}
"""


async def measure(messages: int, rows_a_frame: int) -> tuple[int, list[float]]:
    """Return how many rows there were, and the times between frames in milliseconds."""
    model = ScriptedModel()
    model.scripts = [says(*(f"word {number} " for number in range(messages)))]
    with tempfile.TemporaryDirectory() as home:
        async with inspect(Path(home), model=model) as inspected:
            await inspected.start_thread()
            await inspected.send_message("Speak")
            await inspected.turn_ends()
            await inspected.show_wire_log()
            await inspected.button("Fold deltas").click()
            rows = inspected.page.get_by_role("option")
            count = int(await rows.first.get_attribute("aria-setsize") or "0")
            times = await inspected.page.evaluate(SCROLL, rows_a_frame * ROW_PX)
    return count, sorted(times)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.inspector")
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--rows-a-frame", type=int, default=10)
    options = parser.parse_args()
    count, times = asyncio.run(measure(options.messages, options.rows_a_frame))
    print(f"{count} rows, {len(times)} frames")
    for name, part in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        print(f"{name} {times[int(part * len(times))]:6.1f} ms")
    print(f"max {times[-1]:6.1f} ms")


if __name__ == "__main__":
    main()
