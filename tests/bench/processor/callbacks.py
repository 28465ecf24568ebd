"""What occupies the event loop of a server: its longest callbacks, by processor time.

python -m tests.bench.processor.callbacks FILE ROWS [ARGUMENT…]

Runs `app-server` with these arguments and writes its longest callbacks into FILE when it ends. A
row is: the processor time of a callback in its thread, how much of that the garbage collector
took, how long it was on the clock (the rest was waiting for a core), and what it was. Other
benchmarks start it.
"""

import argparse
import asyncio
import contextlib
import gc
import heapq
import sys
import threading
import time
from asyncio.events import Handle
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from app_server.cli import entry
from tests.support.paths import ROOT

SOURCE = f"{ROOT}/app_server/"
SHOWN_CHARS = 150
"""Of what a row says about a callback."""
SLICE_S = 0.005
"""No callback is to take longer."""


def watched(file: Path, rows: int) -> list[str]:
    """Return the command that runs a watched `app-server`; arguments for that may follow."""
    environment = ["env", f"PYTHONPATH={ROOT}"]
    return [
        *environment,
        sys.executable,
        "-m",
        "tests.bench.processor.callbacks",
        str(file),
        str(rows),
    ]


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


class Collections:
    """How long the garbage collector has run in the thread that asks, and its longest run."""

    def __init__(self) -> None:
        self._of_thread = threading.local()
        self._began_s = 0.0
        self.longest = (0.0, "")
        """Processor time in s, and which generation in which thread."""

    def __call__(self, phase: str, info: Mapping[str, int]) -> None:
        """Take note of the beginning and the end of a collection; see gc.callbacks."""
        if phase == "start":
            self._began_s = time.thread_time()
            return
        took_s = time.thread_time() - self._began_s
        self._of_thread.total_s = self.total_s + took_s
        where = f"generation {info['generation']} in {threading.current_thread().name}"
        self.longest = max(self.longest, (took_s, where))

    @property
    def total_s(self) -> float:
        """Processor time that collections have taken in this thread."""
        return getattr(self._of_thread, "total_s", 0.0)


class Longest:
    """The callbacks that took most processor time so far."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._calls = self._too_long = 0
        self._heap: list[tuple[float, int, float, float, str]] = []
        self.collections = Collections()

    def add(self, busy_s: float, collecting_s: float, took_s: float, handle: Handle) -> None:
        """Take note of a callback."""
        self._calls += 1
        self._too_long += busy_s > SLICE_S
        if len(self._heap) < self._rows or busy_s > self._heap[0][0]:
            row = (busy_s, self._calls, collecting_s, took_s, describe(handle))
            (heapq.heappush if len(self._heap) < self._rows else heapq.heapreplace)(self._heap, row)

    def table(self) -> str:
        """Write a row for each callback, the longest first."""
        longest_s, where = self.collections.longest
        lines = [
            f"{self._calls} callbacks, {self._too_long} of them longer than {1000 * SLICE_S:g} ms",
            f"the longest garbage collection: {1000 * longest_s:.1f} ms, {where}",
            f"{'ms':>8}{'collector':>11}{'clock':>8}  callback",
        ]
        lines += [
            f"{1000 * busy_s:8.1f}{1000 * collecting_s:11.1f}{1000 * took_s:8.1f}"
            f"  {what[:SHOWN_CHARS]}"
            for busy_s, _, collecting_s, took_s, what in sorted(self._heap, reverse=True)
        ]
        return "\n".join(lines)


@contextlib.contextmanager
def watching(longest: Longest) -> Iterator[None]:
    """Take note of every callback of every asyncio loop in this process."""
    handles: Any = Handle
    run = handles._run
    collections = longest.collections

    def run_and_measure(handle: Handle) -> None:
        collected_s = collections.total_s
        began_s, busy_s = time.perf_counter(), time.thread_time()
        run(handle)
        busy_s, took_s = time.thread_time() - busy_s, time.perf_counter() - began_s
        longest.add(busy_s, collections.total_s - collected_s, took_s, handle)

    handles._run = run_and_measure
    gc.callbacks.append(collections)
    try:
        yield
    finally:
        gc.callbacks.remove(collections)
        handles._run = run


def main() -> int:
    """Run `app-server` in this process, and write down its longest callbacks at the end."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.processor.callbacks", description=__doc__
    )
    parser.add_argument("file", type=Path, metavar="FILE", help="where they are written down")
    parser.add_argument("rows", type=int, metavar="ROWS", help="how many")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="ARGUMENT")
    options = parser.parse_args()
    file, longest = options.file, Longest(options.rows)
    sys.argv = ["app-server", *options.arguments]
    try:
        with watching(longest):
            return entry.main()
    finally:
        file.write_text(longest.table())


if __name__ == "__main__":
    sys.exit(main())
