"""Figures of the history of threads: 50,000 threads to list and search, one very long thread.

python -m tests.bench.threads.history [--threads 50000] [--megabytes 500]

These are figures to look at, not tests: nothing passes or fails. The long thread is read in a
process of its own, whose peak of memory is that of reading it.
"""

import argparse
import asyncio
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from app_server.runtime.clock import SystemClock
from app_server.threads.files.store import FileStore
from app_server.threads.history.pages import HistoryQuery, items_page, turns_page
from app_server.threads.history.search import SearchQuery
from app_server.threads.log.reading import ForkPoint
from app_server.threads.rows import ThreadQuery
from protocol.log.rollout import (
    HistoryAppended,
    ItemCompleted,
    Record,
    Settings,
    ThreadCreated,
    TurnCompleted,
    TurnStarted,
    render_record,
)
from protocol.turns.items import (
    AgentMessageThreadItem,
    McpToolCallResult,
    McpToolCallThreadItem,
    TextUserInput,
    UserInput,
    UserMessageThreadItem,
)
from protocol.turns.policy import ReadOnlySandboxPolicy

ROUNDS = 200
LONGEST_S = 10.0
"""For all rounds of one figure."""
LONG = "01900000-0000-7000-8000-000000000001"
OUTPUT_CHARS = 60_000
"""Of a tool, in the long thread; the model sees 4,000 of them."""
WORDS = [
    "build",
    "test",
    "index",
    "cursor",
    "socket",
    "thread",
    "release",
    "parser",
    "kernel",
    "memory",
    "window",
    "garden",
    "river",
    "orange",
    "violin",
    "harbour",
    "winter",
    "market",
    "bridge",
    "candle",
]

CLOCK = SystemClock()


def settings_of(number: int) -> Settings:
    """Make the settings of a thread in one of twenty folders."""
    return Settings(
        model="m",
        model_provider="p",
        cwd=f"/project/{number % 20}",
        approval_policy="on-request",
        sandbox_policy=ReadOnlySandboxPolicy(),
    )


def turn_records(number: int, at_ms: int, question: str, answer: str) -> list[Record]:
    """Make one turn of a question and an answer."""
    name = f"turn-{number}"
    content: list[UserInput] = [TextUserInput(type="text", text=question)]
    asked = UserMessageThreadItem(
        id=f"u{number}", content=content, started_at_ms=at_ms, completed_at_ms=at_ms
    )
    answered = AgentMessageThreadItem(id=f"a{number}", text=answer)
    return [
        TurnStarted(at_ms=at_ms, turn_id=name),
        ItemCompleted(at_ms=at_ms, turn_id=name, item=asked),
        ItemCompleted(at_ms=at_ms, turn_id=name, item=answered),
        TurnCompleted(at_ms=at_ms, turn_id=name, status="completed", duration_ms=1),
    ]


def write_thread(store: FileStore, number: int) -> None:
    """Write a thread of two turns."""
    thread_id, at_ms = CLOCK.new_id(), CLOCK.now_ms()
    words = " ".join(WORDS[(number * step) % len(WORDS)] for step in range(1, 12))
    records: list[Record] = [
        ThreadCreated(
            at_ms=at_ms,
            thread_id=thread_id,
            settings=settings_of(number),
            source="vscode",
            cli_version="1",
        ),
        *turn_records(1, at_ms, f"Task {number}: mend the {words}.", f"It is mended: {words}."),
        *turn_records(2, at_ms, f"And task x{number}y?", f"Number {number * 7919} is done."),
    ]
    path = Path(store.shown_path(thread_id))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(render_record, records)))


def write_long_thread(store: FileStore, megabytes: int) -> int:
    """Write a thread whose log is so long, mostly outputs of tools; return its turns."""
    created = ThreadCreated(
        at_ms=1, thread_id=LONG, settings=settings_of(0), source="vscode", cli_version="1"
    )
    path = Path(store.shown_path(LONG))
    path.parent.mkdir(parents=True, exist_ok=True)
    number = 0
    with path.open("wb") as file:
        file.write(render_record(created))
        while file.tell() < megabytes * 1_000_000:
            number += 1
            file.write(b"".join(map(render_record, _long_turn(number))))
    return number


def _long_turn(number: int) -> list[Record]:
    output = f"line {number} of what the tool says " * (OUTPUT_CHARS // 30)
    begun, asked, answered, ended = turn_records(number, number, f"Step {number}?", "Done.")
    call = McpToolCallThreadItem(
        id=f"c{number}",
        server="s",
        tool="t",
        status="completed",
        arguments={},
        result=McpToolCallResult(content=[{"type": "text", "text": output}]),
    )
    seen = {"type": "function_call_output", "call_id": f"c{number}", "output": output[:4000]}
    return [
        begun,
        asked,
        ItemCompleted(at_ms=number, turn_id=f"turn-{number}", item=call),
        HistoryAppended(at_ms=number, items=[seen]),
        answered,
        ended,
    ]


async def measure(name: str, asked: Callable[[], Awaitable[int]]) -> None:
    """Print the median and the 99th percentile of one question."""
    durations: list[float] = []
    rows = 0
    end = time.perf_counter() + LONGEST_S
    while len(durations) < ROUNDS and (len(durations) < 2 or time.perf_counter() < end):
        began = time.perf_counter()
        rows = await asked()
        durations.append((time.perf_counter() - began) * 1000)
    p99 = statistics.quantiles(durations, n=100)[98]
    print(f"{name:44}{rows:>5} rows{statistics.median(durations):>9.2f} p50{p99:>9.2f} p99 ms")


async def measure_many(count: int) -> None:
    """Write many threads, make the indexes, list and search."""
    with tempfile.TemporaryDirectory() as folder:
        store = FileStore(Path(folder))
        for number in range(count):
            write_thread(store, number)
        began = time.perf_counter()
        await store.open()
        keeping = asyncio.create_task(store.run())
        page = ThreadQuery(limit=25)
        first = await store.lists.page(page)
        listed_s = time.perf_counter() - began
        await store.history.search(SearchQuery("no such thing", 1))
        searched_s = time.perf_counter() - began
        size = (Path(folder) / "index" / "history.sqlite3").stat().st_size
        print(f"{count} threads without indexes: listed after {listed_s:.1f} s", end=", ")
        print(f"searched after {searched_s:.1f} s ({count / searched_s:.0f} threads/s),", end=" ")
        print(f"history index {size / 1e6:.0f} MB")

        async def list_page(query: ThreadQuery) -> int:
            return len((await store.lists.page(query)).rows)

        async def search(query: SearchQuery) -> int:
            return len((await store.history.search(query))[0].found)

        await measure("list: newest 25", partial(list_page, page))
        after = replace(page, cursor=first.next_cursor)
        await measure("list: the 25 after these", partial(list_page, after))
        for name, query in (
            ("a number, in one thread", SearchQuery(f"x{count // 2}y", 25)),
            ("nowhere", SearchQuery("no such words", 25)),
            ("in every thread", SearchQuery("mend the", 25)),
            ("in every thread, by change", SearchQuery("mend", 25, sort_key="updated_at_ms")),
            ("in one thread of ten", SearchQuery("build harbour", 25)),
            ("in one of ten, oldest first", SearchQuery("candle", 25, ascending=True)),
            ("a digit", SearchQuery("7", 25)),
            ("two letters that are nowhere", SearchQuery("qq", 25)),
        ):
            await measure(f"search: {name}", partial(search, query))
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await store.aclose()
        store = FileStore(Path(folder))
        began = time.perf_counter()
        await store.open()
        opened_s = time.perf_counter() - began
        print(f"open with both indexes: {opened_s * 1000:.1f} ms")
        await store.aclose()


def peak_mb() -> float:
    """Return the most memory that this process has had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


async def measure_long(home: Path, turns: int) -> None:
    """Read the long thread in all ways, each figure with the peak of memory so far."""
    store = FileStore(home)
    await store.open()
    keeping = asyncio.create_task(store.run())
    began = time.perf_counter()

    def report(name: str) -> None:
        nonlocal began
        duration_ms = (time.perf_counter() - began) * 1000
        print(f"  {name:44}{duration_ms:>9.1f} ms, peak {peak_mb():.0f} MB", flush=True)
        began = time.perf_counter()

    def page_of(cursor: str | None = None) -> Callable[[], Awaitable[str | None]]:
        query = HistoryQuery(LONG, 25, cursor)

        async def ask() -> str | None:
            page = await store.history.ask(
                LONG, lambda reader: turns_page(reader, query, "summary")
            )
            return page.next_cursor

        return ask

    report("(start)")
    await store.read(LONG)
    report("read without turns")
    await page_of()()
    report("first page, index made on the way")
    thread = await store.load(LONG)
    report(f"resume ({len(thread.state.history)} items of history)")
    await page_of()()
    report("first page")
    middle = f'["turns","{LONG}",{turns // 2},0,false]'
    await page_of(middle)()
    report("page in the middle")
    query = HistoryQuery(LONG, 25, f'["items","{LONG}",{turns // 2},0,false]', ascending=True)
    await store.history.ask(LONG, lambda reader: items_page(reader, query, None))
    report("page of items in the middle")
    created = ThreadCreated(
        at_ms=1, thread_id=CLOCK.new_id(), settings=settings_of(0), source="x", cli_version="1"
    )
    point = ForkPoint(end=await thread.log_end())
    fork = await store.fork(LONG, point, created)
    report("fork, loaded")
    await store.unload(fork)
    await store.unload(thread)
    keeping.cancel()
    await asyncio.gather(keeping, return_exceptions=True)
    await store.aclose()


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=50_000, help="(default: 50000)")
    parser.add_argument("--megabytes", type=int, default=500, help="(default: 500)")
    parser.add_argument("--read", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        asyncio.run(measure_long(Path(options.read[0]), int(options.read[1])))
        return
    if options.threads:
        asyncio.run(measure_many(options.threads))
    if options.megabytes:
        with tempfile.TemporaryDirectory() as folder:
            turns = write_long_thread(FileStore(Path(folder)), options.megabytes)
            print(f"a log of {options.megabytes} MB, {turns} turns:", flush=True)
            command = [
                sys.executable,
                "-m",
                "tests.bench.threads.history",
                "--read",
                folder,
                str(turns),
            ]
            subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
