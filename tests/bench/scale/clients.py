"""Figures of many clients of one node that follow threads of another."""

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.bench.scale.options import Options
from tests.support.clients.lean import LeanClient, is_end, lean_client
from tests.support.processes import Running
from tests.support.threads.nodes import running_nodes

CLIENTS = 1000
THREADS = 100
"""Each is followed by its share of the clients; the first one by all of them at last."""
AT_ONCE = 32
"""Clients that connect, or resume a thread, at the same time."""
TRIED = 40
"""Clients beyond these, of which a node refuses those above its bound."""
BOUND_S = 300.0
"""For a turn to be heard of; who has not by then has missed it."""


class _Step(NamedTuple):
    """A row of the table."""

    name: str
    took_s: float
    processor_s: Sequence[float]
    """Of the clients' node and of the owner."""
    memory_kib: Sequence[int]
    """Likewise, what it has grown by."""
    more: str


class _Steps:
    """Rows of the table so far."""

    def __init__(self, nodes: Sequence[Running]) -> None:
        self._pids = [node.process.pid for node in nodes]
        self._rows: list[_Step] = []

    @asynccontextmanager
    async def step(self, name: str) -> AsyncIterator[list[str]]:
        """Measure a step; what is added to the list is printed with it."""
        more: list[str] = []
        processor = [_processor_s(pid) for pid in self._pids]
        memory = [_memory_kib(pid) for pid in self._pids]
        began = time.perf_counter()
        yield more
        self._rows.append(
            _Step(
                name,
                time.perf_counter() - began,
                [_processor_s(pid) - one for pid, one in zip(self._pids, processor, strict=True)],
                [_memory_kib(pid) - one for pid, one in zip(self._pids, memory, strict=True)],
                ", ".join(more),
            )
        )

    def print(self) -> None:
        """Print the table; processor and memory are shares of one client: its node, the owner."""
        print("| Step | s | processor ms | memory KiB | |\n| --- | --- | --- | --- | --- |")
        for row in self._rows:
            processor = ", ".join(f"{one * 1000 / CLIENTS:.2f}" for one in row.processor_s)
            memory = ", ".join(f"{one / CLIENTS:.1f}" for one in row.memory_kib)
            print(f"| {row.name} | {row.took_s:.1f} | {processor} | {memory} | {row.more} |")


async def measure_clients(options: Options) -> None:
    """Follow 100 threads of one node with 1,000 clients of another, and run turns in them.

    Processor and memory are for one client, of its node and of the owner. Both hold the
    connections between them; at rest nothing is asked for 10 s.
    """
    with tempfile.TemporaryDirectory() as folder:
        async with running_nodes(Path(folder), options.url) as nodes:
            owner, other = nodes.all
            steps = _Steps((other, owner))
            async with AsyncExitStack() as stack:
                near = await stack.enter_async_context(lean_client(owner.urls[0]))
                threads = [await _started(near) for _ in range(THREADS)]
                await _measure(steps, near, threads, other.urls[0], stack)
            async with steps.step("all have left"):
                while any(map(_sockets, (owner.process.pid, other.process.pid))):
                    await asyncio.sleep(0.1)
            steps.print()


async def _measure(
    steps: _Steps, near: LeanClient, threads: Sequence[str], url: str, stack: AsyncExitStack
) -> None:
    clients: list[LeanClient] = []

    async def connect() -> None:
        clients.append(await stack.enter_async_context(lean_client(url)))

    async with steps.step("connect"):
        await _some_at_once(connect() for _ in range(CLIENTS))
    shares = [(client, threads[number % THREADS]) for number, client in enumerate(clients)]
    async with steps.step("`thread/resume`, each of one thread"):
        await _some_at_once(
            client.call("thread/resume", {"threadId": thread_id}) for client, thread_id in shares
        )
    async with steps.step("a turn in each thread") as more:
        more.append(await _measured_ends(near, threads, clients))
    async with steps.step("`thread/resume` of the same thread"):
        await _some_at_once(
            client.call("thread/resume", {"threadId": threads[0]}) for client in clients
        )
    async with steps.step("a turn in it") as more:
        more.append(await _measured_ends(near, threads[:1], clients))
    async with steps.step("at rest"):
        await asyncio.sleep(10)
    async with steps.step("more clients") as more:
        more.append(await _tried(url, stack))


async def _started(client: LeanClient) -> str:
    thread_id: str = (await client.call("thread/start", {}))["thread"]["id"]
    return thread_id


async def _some_at_once(works: Iterable[Awaitable[object]]) -> None:
    room = asyncio.Semaphore(AT_ONCE)

    async def run(work: Awaitable[object]) -> None:
        async with room:
            await work

    await asyncio.gather(*map(run, works))


async def _measured_ends(
    near: LeanClient, threads: Sequence[str], clients: Sequence[LeanClient]
) -> str:
    """Run a turn in each thread; say how many clients hear of the end of one, and how late."""

    async def late_s(client: LeanClient) -> float | None:
        try:
            async with asyncio.timeout(BOUND_S):
                ended = await client.read(is_end)
        except (TimeoutError, ConnectionClosed):
            return None
        return float(time.time() - ended["emittedAtMs"] / 1000)

    hearing = asyncio.gather(*map(late_s, clients))
    for thread_id in threads:
        await near.turn(thread_id, "go")
    found = [one for one in await hearing if one is not None]
    p50, p99 = statistics.median(found), statistics.quantiles(found, n=100)[98]
    return (
        f"{len(found)} of {len(clients)} heard of it, p50 {p50 * 1000:.0f}, p99 {p99 * 1000:.0f} ms"
    )


async def _tried(url: str, stack: AsyncExitStack) -> str:
    refusals: list[int] = []
    for _ in range(TRIED):
        try:
            await stack.enter_async_context(lean_client(url))
        except InvalidStatus as exc:
            refusals.append(exc.response.status_code)
    counted = ", ".join(f"{refusals.count(code)} got {code}" for code in sorted(set(refusals)))
    return f"{TRIED - len(refusals)} of {TRIED} came in, {counted or 'none was refused'}"


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory_kib(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0])


def _sockets(pid: int) -> int:
    """Count connections over TCP that a process has open, but for those to the database."""
    folder = Path(f"/proc/{pid}")
    inodes = {
        target.removeprefix("socket:[").removesuffix("]")
        for one in (folder / "fd").iterdir()
        if (target := os.readlink(one)).startswith("socket:[")
    }
    # Established (01); PostgreSQL is reached over a Unix socket.
    lines = (line.split() for line in (folder / "net/tcp").read_text().splitlines()[1:])
    return sum(line[3] == "01" and line[9] in inodes for line in lines)
