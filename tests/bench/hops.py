"""Requests and deltas between nodes of a group, beside those at the owner of the thread.

python -m tests.bench.hops [--requests N] [--nodes N] [--deltas N] [--a-second N]

Two clients read the goal of one thread, one after the other: one at its owner, one at another node.
Then a turn streams deltas to a client of each of the other nodes, at a steady rate. A PostgreSQL of
its own runs meanwhile. All processes are on this machine and share its processors; this one is all
clients, and the model.
These are figures to look at, not tests.
"""

import argparse
import asyncio
import json
import os
import re
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.support.harness import WireClient
from tests.support.http_peer import HttpRequest, answering
from tests.support.model import says
from tests.support.postgresql import prepare, running_cluster
from tests.support.threads.nodes import running_nodes
from tests.support.turns import start_turn

BATCH_S = 0.01
"""Between two writes of the model: it writes the deltas of this time at once."""
REST_S = 5.0
"""In which is measured what a node takes beside the deltas."""


async def measure_requests(nodes: Any, count: int) -> None:
    """Print what a request takes at the owner and through one more node, alternating."""
    owner, other = nodes.all[:2]
    async with owner.client() as near, other.client() as far:
        thread_id = await near.start_thread()
        asked = {"threadId": thread_id}
        await far.call("thread/resume", asked)
        taken: dict[str, list[float]] = {"owner": [], "hop": []}
        for number in range(count + 50):
            for name, client in (("owner", near), ("hop", far)):
                began = time.perf_counter()
                await client.call("thread/goal/get", asked)
                if number >= 50:
                    taken[name].append(time.perf_counter() - began)
        for name in taken:
            print(f"{name:>8}  {_durations(taken[name])}")
        more = statistics.median(taken["hop"]) - statistics.median(taken["owner"])
        print(f"    more  p50 {more * 1000:.3f} ms")


def _durations(taken_s: Sequence[float]) -> str:
    p50, p99 = statistics.median(taken_s), statistics.quantiles(taken_s, n=100)[98]
    return f"p50 {p50 * 1000:7.3f} ms  p99 {p99 * 1000:7.3f} ms"


async def _streamed(deltas: int, a_second: int) -> AsyncIterator[dict[str, Any]]:
    first, added, *pieces, done, completed = says(*(f"{number} " for number in range(deltas)))
    yield first
    yield added
    began = time.perf_counter()
    for number, piece in enumerate(pieces):
        ahead_s = number / a_second - (time.perf_counter() - began)
        if ahead_s > BATCH_S:
            await asyncio.sleep(ahead_s)
        yield piece
    yield done
    yield completed


_DELTA = re.compile(r'"method":"item/agentMessage/delta".*"delta":"([^"]*)".*"emittedAtMs":(\d+)')
_LAST = '"method":"turn/completed"'


async def _read(client: WireClient) -> tuple[list[int], list[float]]:
    """Return the numbers that came, and how long each took from the owner's event, in seconds.

    Messages are neither parsed nor checked: the clients share the processors with the nodes.
    """
    numbers: list[int] = []
    taken_s: list[float] = []
    while True:
        text = await client.pipe.receive()
        if (delta := _DELTA.search(text)) is not None:
            numbers += map(int, delta[1].split())
            taken_s.append(time.time() - int(delta[2]) / 1000)
        elif _LAST in text:
            return numbers, taken_s


async def measure_deltas(nodes: Any, deltas: int) -> None:
    """Print what deltas to a client of each other node take, and whether all came in order."""
    owner, *others = nodes.all
    async with AsyncExitStack() as stack:
        near = await stack.enter_async_context(owner.client())
        thread_id = await near.start_thread()
        clients = [await stack.enter_async_context(node.client()) for node in others]
        for client in clients:
            await client.call("thread/resume", {"threadId": thread_id})
        pids = [owner.process.pid, *(node.process.pid for node in others), os.getpid()]
        resting = sum(map(_processor_s, pids[1:-1]))
        await asyncio.sleep(REST_S)
        before = [_processor_s(pid) for pid in pids]
        rest_us = (sum(before[1:-1]) - resting) / len(others) / REST_S * 1e6
        began = time.perf_counter()
        await start_turn(near, thread_id, "go")
        heard = await asyncio.gather(*map(_read, clients))
        took_s = time.perf_counter() - began
        spent = [_processor_s(pid) - one for pid, one in zip(pids, before, strict=True)]
        whole = sum(numbers == list(range(deltas)) for numbers, _ in heard)
        print(f"{whole} of {len(clients)} clients had all {deltas} deltas in order")
        print(f"  arrived  {_durations([one for _, taken in heard for one in taken])}")
        print(f"  took     {took_s:.1f} s, {deltas / took_s:.0f} deltas a second")
        print(f"  processor, in µs a delta: {sum(spent) * 1e6 / deltas:.0f}")
        shares = {"owner": spent[:1], "other node": spent[1:-1], "this": spent[-1:]}
        for name, found in shares.items():
            each_us = sum(found) / len(found) * 1e6 / deltas
            print(f"    {name:10} {each_us:5.0f} of each of {len(found)}")
        print(f"  of these, at rest: {rest_us * took_s / deltas:.0f} of each node")


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


async def _main(url: str, requests: int, count: int, deltas: int, a_second: int) -> None:
    async def answer(request: HttpRequest, _: Any, writer: asyncio.StreamWriter) -> bool:
        if request.method == "GET":
            writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")
            return True
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
        writer.write(head + b"transfer-encoding: chunked\r\n\r\n")
        async for event in _streamed(deltas, a_second):
            text = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode()
            writer.write(b"%x\r\n%b\r\n" % (len(text), text))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        return True

    with tempfile.TemporaryDirectory() as folder:
        async with running_nodes(Path(folder), url) as nodes:
            await measure_requests(nodes, requests)
        async with (
            answering(answer) as port,
            running_nodes(
                Path(folder), url, count + 1, model_url=f"http://127.0.0.1:{port}/v1"
            ) as nodes,
        ):
            await measure_deltas(nodes, deltas)


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--nodes", type=int, default=10, help="beside the owner (default: 10)")
    parser.add_argument("--deltas", type=int, default=4000)
    parser.add_argument("--a-second", type=int, default=2000)
    chosen = parser.parse_args()
    with running_cluster() as cluster:
        prepare(cluster)
        with cluster.database() as url:
            asyncio.run(_main(url, chosen.requests, chosen.nodes, chosen.deltas, chosen.a_second))


if __name__ == "__main__":
    main()
