"""Measurements of several servers in one run, so that other load meets all of them.

Every row is measured in blocks: some steps of the first server, as many of the second, and so on,
then the next block, the other way round.
"""

import asyncio
import contextlib
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

from app_server.clients.bench.rows import Row, Subject, converse
from app_server.peer.address import ServerAddress
from protocol.jsonrpc.errors import RpcError
from protocol.model import JsonObject

BLOCKS = 10

WARM_UP = 3
"""Steps of each server before the first block; they do not count."""

START_S = 60.0
"""For the model to say where it listens."""

CPUCLOCK_SCHED = 2
"""Source: clock_getcpuclockid(3): `(~pid << 3) | CPUCLOCK_SCHED`. Linux only."""


@dataclass(slots=True)
class Samples:
    """Measurements of one row on one server."""

    latencies_s: list[float] = field(default_factory=list)
    """Of steps."""
    processor_s: float | None = 0.0
    """Of all of them together; None when it cannot be read."""

    def figures(self, calls: int) -> "Figures":
        """Break it down to one of the `calls` that a step makes."""
        ordered = sorted(self.latencies_s)
        p99 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))]
        used = self.processor_s
        return Figures(
            p50_ms=statistics.median(ordered) / calls * 1000,
            p99_ms=p99 / calls * 1000,
            processor_ms=None if used is None else used / len(ordered) / calls * 1000,
        )


@dataclass(frozen=True, slots=True)
class Figures:
    """One call, in milliseconds."""

    p50_ms: float
    p99_ms: float
    processor_ms: float | None
    """Of the server's process, on any of its threads."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One row of the report: the figures of each target, in the order of the targets."""

    name: str
    figures: Sequence[Figures]


async def bench(
    targets: Sequence[ServerAddress], rows: Sequence[Row], steps: int, report: Callable[[str], None]
) -> list[Measured]:
    """Measure `rows` with about `steps` steps of each on every target.

    `report` is called with what is being done. Threads that were started are deleted afterwards,
    where the server can do that.

    Raises:
        ValueError: a target's URL is none.
        OSError: nobody listens there, it is no app-server, or the connection was lost.
        RpcError: a server refused a call.
    """
    measured = []
    async with AsyncExitStack() as stack:
        config = await stack.enter_async_context(_model())
        subjects = []
        for target in targets:
            report(f"preparing {target.url}")
            subjects.append(await stack.enter_async_context(_subject(target, config)))
        for row in rows:
            report(f"measuring {row.name}")
            measured.append(await _measure(row, targets, subjects, steps))
    return measured


async def _measure(
    row: Row, targets: Sequence[ServerAddress], subjects: Sequence[Subject], steps: int
) -> Measured:
    pairs = [
        (target, subject, Samples()) for target, subject in zip(targets, subjects, strict=True)
    ]
    for _, subject, _ in pairs:
        for _ in range(WARM_UP):
            await row.step(subject)
    steps = max(steps // row.divisor, 1)
    blocks = min(BLOCKS, steps)
    for block in range(blocks):
        for target, subject, samples in pairs if block % 2 == 0 else pairs[::-1]:
            await _measure_block(row, target, subject, samples, -(-steps // blocks))
    return Measured(row.name, [samples.figures(row.calls) for _, _, samples in pairs])


async def _measure_block(
    row: Row, target: ServerAddress, subject: Subject, samples: Samples, steps: int
) -> None:
    before = None if target.pid is None else processor_seconds(target.pid)
    for _ in range(steps):
        began = time.perf_counter()
        await row.step(subject)
        samples.latencies_s.append(time.perf_counter() - began)
    after = None if target.pid is None else processor_seconds(target.pid)
    if before is None or after is None or samples.processor_s is None:
        samples.processor_s = None
    else:
        samples.processor_s += after - before


def processor_seconds(pid: int) -> float | None:
    """Return the processor time of all threads of a process since its start, in seconds.

    None if there is no such process, or no such clock on this platform.
    """
    if sys.platform != "linux":
        return None
    try:
        return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)
    except OSError:
        return None


@asynccontextmanager
async def _subject(target: ServerAddress, config: JsonObject) -> AsyncIterator[Subject]:
    async with converse(target) as server:
        subject = Subject(target.url, server, config)
        try:
            await subject.prepare()
            yield subject
        finally:
            for thread_id in subject.threads:
                # A server that cannot delete keeps them; one that has gone has no use for it.
                with contextlib.suppress(RpcError, ConnectionError):
                    await server.call("thread/delete", {"threadId": thread_id})


@asynccontextmanager
async def _model() -> AsyncIterator[JsonObject]:
    """Run the model as a process of its own; gives the configuration that leads to it."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app_server.clients.bench.model"), stdout=asyncio.subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(START_S):
            port = int(await process.stdout.readline())
        yield {
            "model": "bench",
            "model_provider": "bench",
            "model_providers.bench": {
                "name": "bench",
                "base_url": f"http://127.0.0.1:{port}/v1",
                "wire_api": "responses",
            },
        }
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
