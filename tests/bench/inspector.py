"""Frame times of the inspector while it scrolls, and the time until a long thread is in sight.

Runs a turn of deltas, shows each as a row of the wire log, and scrolls from the beginning to the
end; then opens a thread of many messages as a transcript, prints how long that took until the
newest one was drawn, and scrolls through it. At 60 Hz a frame has 16.7 ms. Needs what
`.ci/inspector` installs.

    python -m tests.bench.inspector [--messages N] [--items N] [--rows-a-frame N]
"""

import argparse
import asyncio
import tempfile
from pathlib import Path

from tests.support.clients.inspected_turn import ANSWER
from tests.support.clients.inspector import Inspected, inspect
from tests.support.model import COMPLETED, ScriptedModel, says

ROW_PX = 28
TURNS = 20
"""Of the long thread: as many as the page reads when it opens one."""

SCROLL = """
async ([role, step]) => {
  const list = document.querySelector(`[role="${role}"]`);
  list.scrollTop = 0;
  const times = [];
  const frame = () => new Promise(requestAnimationFrame);
  await frame();
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

OPEN = """
async ([threadId, newest]) => {
  const frame = () => new Promise(requestAnimationFrame);
  const began = performance.now();
  location.hash = `#/threads/${threadId}`;
  while (!document.querySelector('[role="feed"]')?.textContent.includes(newest)) await frame();
  await frame();
  return performance.now() - began;
}
"""


async def scroll_log(inspected: Inspected, rows_a_frame: int) -> tuple[int, list[float]]:
    """Return how many rows there were, and the times between frames in milliseconds."""
    await inspected.start_thread()
    await inspected.send_message("Speak")
    await inspected.turn_ends()
    await inspected.show_wire_log()
    await inspected.button("Fold deltas").click()
    rows = inspected.page.get_by_role("option")
    count = int(await rows.first.get_attribute("aria-setsize") or "0")
    step = rows_a_frame * ROW_PX
    return count, await inspected.page.evaluate(SCROLL, ["listbox", step])


async def scroll_transcript(inspected: Inspected, step: int) -> tuple[float, int, list[float]]:
    """Return the milliseconds until the thread was in sight, its entries, and times of frames."""
    async with inspected.served.client() as client:
        thread_id = await client.start_thread()
        for number in range(TURNS):
            await client.turn(thread_id, f"Turn {number}")
    page = inspected.page
    opened = await page.evaluate(OPEN, [thread_id, "The newest one."])
    count = await page.get_by_role("feed").locator("article").count()
    return opened, count, await page.evaluate(SCROLL, ["feed", step])


async def measure(messages: int, items: int, rows_a_frame: int) -> None:
    """Measure, and print."""
    model = ScriptedModel()
    each = max(1, items // TURNS - 2)
    long = [
        event
        for number in range(each)
        for event in says(f"{number}. {ANSWER[:400]}", item_id=f"msg_{number}")[:-1]
    ]
    last = says("The newest one.", item_id="msg_last")
    model.scripts = [
        says(*(f"word {number} " for number in range(messages))),
        *([*long, COMPLETED] for _ in range(TURNS - 1)),
        [*long, *last],
    ]
    with tempfile.TemporaryDirectory() as home:
        async with inspect(Path(home), model=model) as inspected:
            count, times = await scroll_log(inspected, rows_a_frame)
            print_times(f"wire log of {count} rows", times)
            opened, count, times = await scroll_transcript(inspected, rows_a_frame * ROW_PX)
            print(f"transcript in sight after {opened:.0f} ms")
            print_times(f"transcript of {count} entries", times)


def print_times(name: str, times: list[float]) -> None:
    """Print the quantiles of times between frames."""
    times = sorted(times)
    print(f"{name}, {len(times)} frames")
    for quantile, part in (("p50", 0.5), ("p95", 0.95), ("p99", 0.99)):
        print(f"{quantile} {times[int(part * len(times))]:6.1f} ms")
    print(f"max {times[-1]:6.1f} ms")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.inspector")
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--items", type=int, default=10_000)
    parser.add_argument("--rows-a-frame", type=int, default=10)
    options = parser.parse_args()
    asyncio.run(measure(options.messages, options.items, options.rows_a_frame))


if __name__ == "__main__":
    main()
