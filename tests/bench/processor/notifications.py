"""What notifications cost turns: two servers, one of which sends a webhook for each turn.

    python -m tests.bench.processor.notifications [--minute N] [--seconds S] [--blocks B]

Turns of one message, begun at a steady pace of N a minute over 16 threads, in blocks of S seconds
that go to the two servers in turn, B each, so that whatever else the machine does disturbs both.
The model and the receiver are in this process. Printed are the times of turns as their client sees
them, and the processor time of the server for each.
These are figures to look at, not tests: nothing passes or fails.
"""

import argparse
import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from websockets.asyncio.client import connect

from tests.bench.server import Client
from tests.support.harness import write_config
from tests.support.model import ScriptedModel
from tests.support.notifications.receiver import Receiver, rendered
from tests.support.processes import running

THREADS = 16


@dataclass
class Side:
    """One server, and what was measured of it."""

    name: str
    client: Client
    pid: int
    threads: Sequence[str]
    turns_ms: list[float] = field(default_factory=list)
    used_ms: list[float] = field(default_factory=list)
    """Of the processor for each turn, a value for each block."""


def used_s(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def block(side: Side, count: int, pause_s: float) -> None:
    """Run turns at a steady pace."""

    async def one(number: int) -> None:
        began = time.perf_counter()
        await side.client.turn(side.threads[number % THREADS], "hello")
        side.turns_ms.append((time.perf_counter() - began) * 1000)

    before, begins = used_s(side.pid), time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in range(count):
            await asyncio.sleep(max(0.0, begins + number * pause_s - time.perf_counter()))
            tasks.create_task(one(number))
    side.used_ms.append((used_s(side.pid) - before) * 1000 / count)


async def measure(minute: int, seconds: float, blocks: int) -> None:
    """Measure and print a table."""
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        model = await enter(ScriptedModel().serve())
        receiver = await enter(Receiver().serve())
        sides = []
        for name in ("without", "with"):
            home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            hook = rendered(**receiver.entry(home, "turnCompleted")) if name == "with" else ""
            write_config(home, model.url, hook)
            server = await enter(running(home))
            socket = await enter(connect(server.urls[0], compression=None, max_size=None))
            client = Client(socket)
            info = {"name": "bench", "version": "1"}
            await client.call("initialize", {"clientInfo": info})
            started = [await client.call("thread/start", {}) for _ in range(THREADS)]
            threads = [one["thread"]["id"] for one in started]
            sides.append(Side(name, client, server.process.pid, threads))
        count = int(minute * seconds / 60)
        for number in range(blocks + 1):
            for side in sides if number % 2 else reversed(sides):
                await block(side, count, 60 / minute)
            if number == 0:
                # Imports and first uses.
                for side in sides:
                    side.turns_ms.clear()
                    side.used_ms.clear()
        sent = (blocks + 1) * count
        await receiver.wait_for(sent)
        print(f"{minute} turns a minute, {blocks} blocks of {count} turns for each server")
        print(f"{len(receiver.requests)} webhooks of {sent} turns")
        medians = [statistics.median(side.turns_ms) for side in sides]
        for side, p50 in zip(sides, medians, strict=True):
            p90 = sorted(side.turns_ms)[len(side.turns_ms) * 9 // 10]
            used = statistics.median(side.used_ms)
            print(
                f"{side.name:8}  turn p50 {p50:6.2f} ms, p90 {p90:6.2f} ms; "
                f"processor {used:5.2f} ms a turn"
            )
        without, with_webhook = medians
        print(f"a turn takes {100 * (with_webhook / without - 1):+.1f} % with a webhook (p50)")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minute", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--blocks", type=int, default=8)
    options = parser.parse_args()
    asyncio.run(measure(options.minute, options.seconds, options.blocks))


if __name__ == "__main__":
    main()
