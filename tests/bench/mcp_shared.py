"""Figures of threads that share MCP servers, beside threads without any, in one run.

python -m tests.bench.mcp_shared [--servers N] [--threads N]

Two app-servers run: one has N servers of tests/support/mcp_peers/mcp_peer.py with `share = "home"`
for every thread, the other has none. They take turns at starting threads: each some in a row, and
some with a pause before each. Behind the answer come two notifications for each server; without
the pause the next answer waits until the server has sent them and the client has read them. What a
process and its children take is their proportional share of memory (Pss: pages that several have
are divided by their number), so this needs Linux.

These are figures to look at, not tests: nothing passes or fails.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

from app_server.clients.bench.run import processor_seconds
from tests.bench.model import bench_model
from tests.bench.server import Client, Target, started
from tests.support.paths import MCP_PEER
from tests.support.processes import memory_mb, tree_of

COMMAND = f"{Path(sys.executable).with_name('app-server')} --listen ws://127.0.0.1:{{port}}"
FEW = 5
"""Half of the threads at the first look at memory."""
BLOCK = 15
"""Half of the threads that are started before the other app-server has its turn."""
QUIET_S = 1.0
"""After a block, for what is done behind the answers."""
PAUSE_S = 0.02
"""Before a start that nothing else overlaps."""


WITH_PAUSE = "until the answer, with a pause"
IN_A_ROW = "until the answer, in a row"
PROCESSOR = "server's processor"
CLIENT = "client's processor"
FIGURES = (WITH_PAUSE, IN_A_ROW, PROCESSOR, CLIENT)
"""Milliseconds of a start; of the processors on the average of each block."""


@dataclass
class Subject:
    """One app-server, and what was measured of it."""

    target: Target
    client: Client
    figures: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in FIGURES})

    async def start(self, threads: int) -> None:
        """Start threads in a row, then as many with a pause before each, and measure."""
        assert self.target.pid is not None
        before, read_before = processor_seconds(self.target.pid), time.process_time()
        for _ in range(threads):
            await self._start_one(IN_A_ROW)
        await asyncio.sleep(QUIET_S)
        after, read_after = processor_seconds(self.target.pid), time.process_time()
        assert before is not None
        assert after is not None
        self.figures[PROCESSOR].append((after - before) / threads * 1000)
        self.figures[CLIENT].append((read_after - read_before) / threads * 1000)
        for _ in range(threads):
            await asyncio.sleep(PAUSE_S)
            await self._start_one(WITH_PAUSE)

    async def _start_one(self, figure: str) -> None:
        began = time.perf_counter()
        await self.target.thread(self.client)
        self.figures[figure].append((time.perf_counter() - began) * 1000)


def show_memory(threads: int, pid: int) -> tuple[float, float]:
    """Print what an app-server takes, and return it: the tree, the process alone."""
    tree = tree_of(pid)
    servers = sum(str(MCP_PEER) in Path(f"/proc/{one}/cmdline").read_text() for one in tree)
    whole, alone = memory_mb(*tree), memory_mb(pid)
    print(
        f"{threads:4} threads: {servers} server processes of {len(tree)} processes, "
        f"{whole:.1f} MB, of which {alone:.1f} MB the app-server"
    )
    return whole, alone


async def main(options: argparse.Namespace) -> None:
    """Measure, and print."""
    settings = "".join(
        f"[mcp_servers.shared{number}]\ncommand = {json.dumps(sys.executable)}\n"
        f'args = [{json.dumps(str(MCP_PEER))}]\nshare = "home"\n'
        for number in range(options.servers)
    )
    with (
        bench_model() as config,
        started(COMMAND, config, 1, settings) as with_servers,
        started(COMMAND, config, 1) as without,
    ):
        async with AsyncExitStack() as stack:
            subjects = [
                Subject(target, await stack.enter_async_context(target.client()))
                for target in (with_servers, without)
            ]
            # What only the first threads cost is not what is measured, nor are starts of servers.
            for subject in subjects:
                await subject.start(FEW)
                await asyncio.sleep(2 * QUIET_S)
            seen = [show_memory(2 * FEW, subject.target.pid or 0) for subject in subjects]
            for subject in subjects:
                for values in subject.figures.values():
                    values.clear()
            for number in range((options.threads - 2 * FEW) // (2 * BLOCK)):
                for subject in subjects if number % 2 else subjects[::-1]:
                    await subject.start(BLOCK)
            for subject, (tree, alone) in zip(subjects, seen, strict=True):
                now = show_memory(options.threads, subject.target.pid or 0)
                print(f"      grown: {now[0] / tree - 1:+.1%}, alone {now[1] / alone - 1:+.1%}")
            print(
                f"{'thread/start, ms':32}{f'{options.servers} shared':>12}{'none':>12}{'ratio':>8}"
            )
            for name in FIGURES:
                shared, alone = (statistics.median(one.figures[name]) for one in subjects)
                print(f"  {name:30}{shared:12.2f}{alone:12.2f}{shared / alone:8.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--servers", type=int, default=11, help="shared (default: 11)")
    parser.add_argument("--threads", type=int, default=100, help="at the end (default: 100)")
    asyncio.run(main(parser.parse_args()))
