"""Figures of the thread store with many threads: making the index anew, lists from it, starts.

python -m tests.bench.threads.store [--threads 50000] [--codex 5000]

These are figures to look at, not tests: nothing passes or fails.
"""

import argparse
import asyncio
import http.client
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from app_server.runtime.clock import SystemClock
from app_server.threads.files.codex.threads import CodexThreads
from app_server.threads.files.index.index import ThreadIndex
from app_server.threads.files.repair import index_path
from app_server.threads.files.store import FileStore
from app_server.threads.files.writers import LogPaths
from app_server.threads.rows import ThreadQuery
from protocol.log.rollout import (
    ItemCompleted,
    Record,
    Settings,
    ThreadCreated,
    TurnStarted,
    render_record,
)
from protocol.turns.items import TextUserInput, UserInput, UserMessageThreadItem
from protocol.turns.policy import ReadOnlySandboxPolicy

ROUNDS = 200
STARTS = 7


def write_log(store: FileStore, clock: SystemClock, number: int) -> None:
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
    path = Path(store.shown_path(thread_id))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"".join(map(render_record, records)))


def write_rollout(home: Path, clock: SystemClock, number: int) -> None:
    """Write a thread of one message as Codex does."""
    thread_id, at = clock.new_id(), "2026-01-01T00:00:00.000Z"
    meta = {"id": thread_id, "timestamp": at, "cwd": f"/project/{number % 20}", "source": "cli"}
    meta |= {"cli_version": "0.169.0", "model_provider": "p", "base_instructions": "x" * 16_000}
    context = {"cwd": meta["cwd"], "model": "m", "approval_policy": "never"}
    item = {"type": "UserMessage", "id": "u", "content": [{"type": "text", "text": "Mend it."}]}
    lines = [
        ("session_meta", meta),
        ("event_msg", {"type": "task_started", "turn_id": "t"}),
        ("turn_context", context),
        ("event_msg", {"type": "item_completed", "turn_id": "t", "item": item}),
        ("event_msg", {"type": "task_complete", "turn_id": "t"}),
    ]
    day = home / "sessions" / f"2026/01/{1 + number % 28:02}"
    day.mkdir(parents=True, exist_ok=True)
    (day / f"rollout-2026-01-01T00-00-00-{thread_id}.jsonl").write_text(
        "".join(
            json.dumps({"timestamp": at, "type": kind, "payload": payload}) + "\n"
            for kind, payload in lines
        )
    )


def measure_start(home: Path) -> float:
    """Start the executable and return the milliseconds until `/readyz` answers."""
    executable = Path(sys.executable).parent / "app-server"
    began = time.perf_counter()
    process = subprocess.Popen(
        [str(executable), "--home", str(home), "--listen", "ws://127.0.0.1:0"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    port = int(process.stderr.readline().rsplit(":", 1)[1])
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/readyz")
    assert connection.getresponse().status == 200
    took_ms = (time.perf_counter() - began) * 1000
    process.kill()
    process.communicate()
    return took_ms


async def measure_list(store: FileStore, name: str, query: ThreadQuery) -> None:
    """Print the median and the 99th percentile of one list."""
    durations = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        page = await store.lists.page(query)
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
    parser.add_argument("--codex", type=int, default=5_000, help="(default: 5000)")
    options = parser.parse_args()
    clock = SystemClock()
    with tempfile.TemporaryDirectory() as folder:
        store = FileStore(Path(folder))
        for number in range(options.threads):
            write_log(store, clock, number)
        for number in range(options.codex):
            write_rollout(Path(folder), clock, number)
        took_ms = measure_start(Path(folder))
        print(f"start to /readyz without an index: {took_ms:.0f} ms")
        shutil.rmtree(Path(folder) / "index")
        began = time.perf_counter()
        await store.open()
        keeping = asyncio.create_task(store.run())
        first = ThreadQuery(limit=10)
        page = await store.lists.page(first)
        total = options.threads + options.codex
        print(f"index of {total} threads made in {time.perf_counter() - began:.1f} s")
        again = CodexThreads(Path(folder), LogPaths(Path(folder) / "threads"))
        began = time.perf_counter()
        again.look(ThreadIndex(index_path(Path(folder))))
        took_ms = (time.perf_counter() - began) * 1000
        print(f"look at {options.codex} rollouts of Codex that did not change: {took_ms:.0f} ms")
        await measure_list(store, "newest 10", first)
        await measure_list(store, "the 10 after these", replace(first, cursor=page.next_cursor))
        await measure_list(store, "last changed 10", replace(first, sort_key="updated_at_ms"))
        await measure_list(store, "10 of one folder", replace(first, cwds=["/project/7"]))
        await measure_list(store, "a page of 100", replace(first, limit=100))
        await measure_list(store, "search, found nowhere", replace(first, search="no such words"))
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await store.aclose()
        starts = [measure_start(Path(folder)) for _ in range(STARTS)]
        print(f"start to /readyz: {statistics.median(starts):.0f} ms")


if __name__ == "__main__":
    asyncio.run(main())
