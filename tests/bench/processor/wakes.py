"""Prints the processor time of a server at rest, without wakes and with many armed timers.

python -m tests.bench.processor.wakes [COUNT]
"""

import asyncio
import sys
import time
from dataclasses import astuple
from pathlib import Path
from tempfile import TemporaryDirectory

from app_server.threads.files.ledger import Ledger
from app_server.threads.files.signals import ledger_path
from app_server.threads.files.wakes import INSERT
from app_server.threads.wakes import COLUMNS, StoredWake
from tests.support.harness import write_config
from tests.support.model import ScriptedModel
from tests.support.processes import running

COUNT = 10_000
REST_S = 20.0
DAY_MS = 24 * 3600 * 1000


def armed(home: Path, count: int) -> None:
    """Make a ledger of signals with armed timers, some of each thread, for tomorrow."""
    ledger = Ledger(ledger_path(home))
    now_ms = time.time_ns() // 1_000_000
    rows = []
    for number in range(count):
        at_ms = now_ms + DAY_MS + number
        wake = StoredWake(
            id=f"wake-{number}",
            thread_id=f"thread-{number // 32}",
            kind="timer",
            source=f'{{"type":"timer","atMs":{at_ms}}}',
            note="",
            mode="wake",
            state="armed",
            set_at_ms=now_ms,
            changed_at_ms=now_ms,
            at_ms=at_ms,
            look_at_ms=at_ms,
        )
        rows.append(astuple(wake)[: len(COLUMNS)])
    # All at once: each by itself is synced.
    with ledger.transaction() as database:
        database.executemany(INSERT, rows)
    ledger.close()


def spent_s(pid: int) -> float:
    """Return the processor time of a process so far, in seconds."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / 100


async def at_rest(count: int) -> float:
    """Return the processor time of a second at rest, in milliseconds."""
    with TemporaryDirectory() as folder:
        home = Path(folder)
        async with ScriptedModel().serve() as model:
            write_config(home, model.url)
            await asyncio.to_thread(armed, home, count)
            async with running(home) as server, server.client() as client:
                await client.call("thread/wake/list", {})
                await asyncio.sleep(5)
                before_s = spent_s(server.process.pid)
                await asyncio.sleep(REST_S)
                return (spent_s(server.process.pid) - before_s) / REST_S * 1000


async def main(count: int) -> None:
    """Measure without, with, and without again."""
    for number in (0, count, 0, count):
        print(f"{number:6} armed timers: {await at_rest(number):6.2f} ms of processor a second")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else COUNT))
