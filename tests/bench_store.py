"""Figures of the thread store with many threads: making the index anew, and lists from it.

python -m tests.bench_store [--threads 50000]

These are figures to look at, not tests: nothing passes or fails.
"""

import argparse
import asyncio
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from app_server.clock import SystemClock
from app_server.threads.index import ThreadQuery
from app_server.threads.store import ThreadStore
from protocol.items import TextUserInput, UserInput, UserMessageThreadItem
from protocol.policy import ReadOnlySandboxPolicy
from protocol.rollout import (
    ItemCompleted,
    Record,
    Settings,
    ThreadCreated,
    TurnStarted,
    render_record,
)

ROUNDS = 200


def write_log(store: ThreadStore, clock: SystemClock, number: int) -> None:
    """Write a thread of one message."""
    thread_id, at_ms = clock.new_id(), clock.now_ms()
    settings = Settings(
        model="m",
        model_provider="p",
        cwd=f"/project/{number % 20}",
        approval_policy="on-request",
        sandbox_policy=ReadOnlySandboxPolicy(),
    )
    said: list[UserInput] = [TextUserInput(type="text", text=f"Task {number}: mend the build.")]
    message = UserMessageThreadItem(
        id="u", content=said, started_at_ms=at_ms, completed_at_ms=at_ms
    )
    records: list[Record] = [
        ThreadCreated(
            at_ms=at_ms, thread_id=thread_id, settings=settings, source="vscode", cli_version="1"
        ),
        TurnStarted(at_ms=at_ms, turn_id="t"),
        ItemCompleted(at_ms=at_ms, turn_id="t", item=message),
    ]
    path = store.path_of(thread_id)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(render_record, records)))


async def measure_list(store: ThreadStore, name: str, query: ThreadQuery) -> None:
    """Print the median and the 99th percentile of one list."""
    durations = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        page = await store.list_page(query)
        durations.append((time.perf_counter() - began) * 1000)
    p99 = statistics.quantiles(durations, n=100)[98]
    print(
        f"{name:32}{len(page.rows):>6} rows"
        f"{statistics.median(durations):>10.2f} ms p50{p99:>10.2f} ms p99"
    )


async def main() -> None:
    """Write the logs, make the index, list."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=50_000, help="(default: 50000)")
    options = parser.parse_args()
    clock = SystemClock()
    with tempfile.TemporaryDirectory() as folder:
        store = ThreadStore(Path(folder))
        for number in range(options.threads):
            write_log(store, clock, number)
        began = time.perf_counter()
        await store.open()
        keeping = asyncio.create_task(store.run())
        first = ThreadQuery(limit=10)
        page = await store.list_page(first)
        print(f"index of {options.threads} threads made in {time.perf_counter() - began:.1f} s")
        await measure_list(store, "newest 10", first)
        await measure_list(store, "the 10 after these", replace(first, cursor=page.next_cursor))
        await measure_list(store, "last changed 10", replace(first, sort_key="updated_at_ms"))
        await measure_list(store, "10 of one folder", replace(first, cwds=["/project/7"]))
        await measure_list(store, "a page of 100", replace(first, limit=100))
        await measure_list(store, "search, found nowhere", replace(first, search="no such words"))
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await store.aclose()


if __name__ == "__main__":
    asyncio.run(main())
