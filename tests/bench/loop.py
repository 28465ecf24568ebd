"""What occupies the event loop of a server longest, under a typical load.

python -m tests.bench.loop [--clients N] [--turns N] [--deltas N] [--rows N]

A server of its own process, a model that answers at once, clients that start a thread each, run
turns, and list and read threads in between. A row is: how long a callback took, its processor time
(the rest was waiting for a core), and what it was. It sees asyncio's own loop only, so it needs an
environment without uvloop. These are figures to look at, not tests.
"""

import argparse
import asyncio
import contextlib
import gc
import heapq
import subprocess
import sys
import tempfile
import time
from asyncio.events import Handle
from pathlib import Path
from typing import Any

from app_server.cli import serve as cli
from tests.bench.server import started
from tests.support.lean import LeanClient, lean_client

ROOT = Path(__file__).parents[2]
SOURCE = f"{ROOT}/app_server/"
SHOWN_CHARS = 150
"""Of what a row says about a callback."""


def describe(handle: Handle) -> str:
    """Name the coroutine that ran and the line of ours where it waits now, or the callback."""
    callback = handle._callback  # type: ignore[attr-defined]
    # What starts a task keeps it where only the garbage collector sees it.
    tasks = [each for each in gc.get_referents(callback) if isinstance(each, asyncio.Task)]
    if not tasks:
        return repr(handle)
    coroutine: Any = tasks[0].get_coro()
    innermost, where = coroutine, ""
    while innermost is not None:
        frame = getattr(innermost, "cr_frame", None)
        if frame and (file := frame.f_code.co_filename).startswith(SOURCE):
            where = f", now at {file.removeprefix(SOURCE)}:{frame.f_lineno}"
        innermost = getattr(innermost, "cr_await", None)
    return f"{coroutine.__qualname__}{where}"


class Longest:
    """The callbacks that took longest so far."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._calls = 0
        self._heap: list[tuple[float, int, float, str]] = []

    def add(self, took_s: float, busy_s: float, handle: Handle) -> None:
        """Take note of a callback."""
        self._calls += 1
        if len(self._heap) < self._rows or took_s > self._heap[0][0]:
            row = (took_s, self._calls, busy_s, describe(handle))
            (heapq.heappush if len(self._heap) < self._rows else heapq.heapreplace)(self._heap, row)

    def table(self) -> str:
        """Write a row for each callback, the longest first."""
        lines = [f"{self._calls} callbacks", f"{'ms':>8}{'processor':>11}  callback"]
        lines += [
            f"{1000 * took_s:8.1f}{1000 * busy_s:11.1f}  {what[:SHOWN_CHARS]}"
            for took_s, _, busy_s, what in sorted(self._heap, reverse=True)
        ]
        return "\n".join(lines)


def run_watched(file: Path, rows: int, arguments: list[str]) -> int:
    """Run `app-server` in this process, and write down its longest callbacks at the end."""
    longest = Longest(rows)
    handles: Any = Handle
    run = handles._run

    def run_and_measure(handle: Handle) -> None:
        began, busy = time.perf_counter(), time.thread_time()
        run(handle)
        longest.add(time.perf_counter() - began, time.thread_time() - busy, handle)

    handles._run = run_and_measure
    try:
        return cli.main(arguments)
    finally:
        file.write_text(longest.table())


async def converse(url: str, config: dict[str, Any], turns: int, deltas: int) -> None:
    """Be one client."""
    async with lean_client(url) as client:
        thread_id = (await client.call("thread/start", {"config": config}))["thread"]["id"]
        for _ in range(turns):
            await client.turn(thread_id, f"events {deltas}")
            client.events.clear()
            await look_around(client, thread_id)


async def look_around(client: LeanClient, thread_id: str) -> None:
    """Ask what an editor asks between turns."""
    await client.call("thread/list", {"limit": 25})
    await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
    await client.call("model/list", {})
    await client.call("config/read", {})


async def load(url: str, config: dict[str, Any], options: argparse.Namespace) -> None:
    """Be all clients at the same time."""
    async with asyncio.TaskGroup() as tasks:
        for _ in range(options.clients):
            tasks.create_task(converse(url, config, options.turns, options.deltas))


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--turns", type=int, default=10, help="of each client (default: 10)")
    parser.add_argument("--deltas", type=int, default=500, help="of each turn (default: 500)")
    parser.add_argument("--rows", type=int, default=15)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        model = subprocess.Popen(
            [sys.executable, "-m", "app_server.clients.bench.model"],
            stdout=subprocess.PIPE,
            text=True,
        )
        stack.callback(model.wait)
        stack.callback(model.kill)
        assert model.stdout is not None
        config: dict[str, Any] = {
            "model": "bench",
            "model_provider": "bench",
            "model_providers.bench": {
                "name": "bench",
                "base_url": f"http://127.0.0.1:{model.stdout.readline().strip()}/v1",
            },
        }
        file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "longest"
        command = (
            f"env PYTHONPATH={ROOT} {sys.executable} -m tests.bench.loop --watched {file}"
            f" {options.rows} --listen ws://127.0.0.1:{{port}}"
        )
        with started(command, config, starts=1) as target:
            asyncio.run(load(target.url, config, options))
        print(file.read_text())


if __name__ == "__main__":
    if sys.argv[1:2] == ["--watched"]:
        sys.exit(run_watched(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
    main()
