"""Prints the processor time of two servers at rest, without wakes and with many armed timers.

python -m tests.bench.processor.wakes [COUNT]
"""

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import astuple
from pathlib import Path
from tempfile import TemporaryDirectory

from app_server.threads.files.ledger import Ledger
from app_server.threads.files.signals import ledger_path
from app_server.threads.files.wakes import INSERT
from app_server.threads.wakes import COLUMNS, StoredWake
from tests.support.harness import write_config
from tests.support.model import ScriptedModel
from tests.support.processes import Running, running

COUNT = 10_000
OF_THREAD = 32
REST_S = 20.0
ROUNDS = 4
DAY_MS = 24 * 3600 * 1000


def armed(home: Path, threads: Sequence[str], count: int) -> None:
    """Make a ledger of signals with armed timers, some of each thread, for tomorrow."""
    ledger = Ledger(ledger_path(home))
    now_ms = time.time_ns() // 1_000_000
    rows = []
    for number in range(count):
        at_ms = now_ms + DAY_MS + number
        wake = StoredWake(
            id=f"wake-{number}",
            thread_id=threads[number // OF_THREAD],
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


def spent_ms(pid: int) -> float:
    """Return the processor time of a process so far, with all its threads, in milliseconds."""
    # The clock of another process; clock_getcpuclockid(3) makes its number so.
    return time.clock_gettime_ns(~pid << 3 | 2) / 1e6


@asynccontextmanager
async def at_rest(count: int) -> AsyncIterator[Running]:
    """Run a server with armed timers of threads that are there, until it has looked at them."""
    with TemporaryDirectory() as folder:
        home = Path(folder)
        async with ScriptedModel().serve() as model:
            write_config(home, model.url)
            async with running(home) as server, server.client() as client:
                threads = [await client.start_thread() for _ in range(-(-count // OF_THREAD))]
            await asyncio.to_thread(armed, home, threads, count)
            async with running(home) as server, server.client() as client:
                listed = await client.call("thread/wake/list", {"state": "armed", "limit": 1})
                assert bool(listed["data"]) is bool(count)
                await asyncio.sleep(REST_S)
                yield server
                assert (
                    await client.call("thread/wake/list", {"state": "armed", "limit": 1}) == listed
                )


async def main(count: int) -> None:
    """Measure both at the same time, so that whatever else runs disturbs both."""
    async with at_rest(0) as without, at_rest(count) as with_timers:
        servers = (0, without), (count, with_timers)
        for _ in range(ROUNDS):
            before = [spent_ms(server.process.pid) for _, server in servers]
            await asyncio.sleep(REST_S)
            for (number, server), before_ms in zip(servers, before, strict=True):
                spent = (spent_ms(server.process.pid) - before_ms) / REST_S
                print(f"{number:6} armed timers: {spent:6.3f} ms of processor a second", flush=True)


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else COUNT))
