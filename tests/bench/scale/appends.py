"""Figures of appends and loads, of both stores."""

import asyncio
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from app_server.config.store_url import StoreUrl
from app_server.threads.log.live import LiveThread
from app_server.threads.opening.stores import open_stores
from app_server.threads.store import ThreadStore
from protocol.log.rollout import HistoryAppended
from tests.bench.scale.options import Options, durations
from tests.support.threads.histories import turn
from tests.support.threads.stores import created, raw

AT_ONCE = (1, 16, 100)
"""Threads that append at the same time."""
ROUNDS = 8
RECORDS = 600
"""Of one round, over all threads."""
MIN_EACH = 50
"""Of one thread in a round: its first one, which also writes its row, is measured by itself."""
RECORD = HistoryAppended(at_ms=5, items=[raw("x" * 900)])
"""About 1 KiB."""
LONG = 2_500
"""Turns of the thread that is loaded: four records each."""
LOADS = 7


@dataclass(slots=True)
class _Appended:
    """Appends of all rounds of one store."""

    taken_s: list[float] = field(default_factory=list)
    """Of each one."""
    wall_s: float = 0.0
    processor_s: float = 0.0

    @property
    def processor_us(self) -> float:
        """Of one append, in microseconds."""
        return self.processor_s / len(self.taken_s) * 1e6


@asynccontextmanager
async def both_stores(url: str) -> AsyncIterator[Mapping[str, ThreadStore]]:
    """Open an empty store of files and one of a database."""
    async with AsyncExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        opened = {}
        for name, store in (("files", None), ("postgresql", StoreUrl(url))):
            threads = (await open_stores(home, store)).threads
            await threads.open()
            keeping = asyncio.create_task(threads.run())
            stack.push_async_callback(threads.aclose)
            stack.callback(keeping.cancel)
            opened[name] = threads
        yield opened


async def measure_appends(options: Options) -> None:
    """Append synced records of 1 KiB.

    `processor` is the time of this process for a record, without that of PostgreSQL's. The first
    record of each thread is not in the other figures: a thread's row is written with it.
    """
    async with both_stores(options.url) as stores:
        for at_once in AT_ONCE:
            firsts = {name: _Appended() for name in stores}
            others = {name: _Appended() for name in stores}
            each = max(RECORDS // at_once, MIN_EACH)
            for _ in range(ROUNDS):
                for name, store in stores.items():
                    threads = [await store.create(created()) for _ in range(at_once)]
                    await _append(threads, 1, firsts[name])
                    await _append(threads, each, others[name])
                    for thread in threads:
                        await store.unload(thread)
            for name, found in others.items():
                first_us = firsts[name].processor_us
                print(
                    f"{at_once:4} at once  {name:11}{durations(found.taken_s)}  "
                    f"{len(found.taken_s) / found.wall_s:8.0f} a second  "
                    f"processor {found.processor_us:5.0f} µs, first {first_us:5.0f}",
                    flush=True,
                )


async def _append(threads: Sequence[LiveThread], each: int, figures: _Appended) -> None:
    """Append `each` records to each thread, to all threads at the same time."""

    async def write(thread: LiveThread) -> None:
        for _ in range(each):
            began = time.perf_counter()
            await thread.append(RECORD)
            figures.taken_s.append(time.perf_counter() - began)

    began, processor = time.perf_counter(), time.process_time()
    await asyncio.gather(*map(write, threads))
    figures.wall_s += time.perf_counter() - began
    figures.processor_s += time.process_time() - processor


async def measure_load(options: Options) -> None:
    """Load a thread of 10,000 records, 8 MB."""
    async with both_stores(options.url) as stores:
        ids, taken = {}, {}
        for name, store in stores.items():
            thread = await store.create(created())
            for number in range(LONG):
                # One append a record, as turns write them.
                for record in turn(number, "y" * 2_400):
                    await thread.append(record, sync=False)
            await store.unload(thread)
            ids[name], taken[name] = thread.id, list[float]()
        for _ in range(LOADS):
            for name, store in stores.items():
                began = time.perf_counter()
                thread = await store.load(ids[name])
                taken[name].append(time.perf_counter() - began)
                await store.unload(thread)
        for name, found in taken.items():
            print(
                f"{name:11}median {statistics.median(found) * 1000:8.1f} ms  "
                f"best {min(found) * 1000:8.1f} ms",
                flush=True,
            )
