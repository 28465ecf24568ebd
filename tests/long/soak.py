"""Opens and closes threads with MCP servers, and counts what is left.

python -m tests.long.soak [--cycles N] [--width N]

Each cycle starts a thread with a server on pipes and one behind a URL, calls a tool of both, and
archives the thread. Processes, descriptors by kind, tasks and loaded threads must be what they were
before, or the exit status is 1. Memory is printed: it is a figure to look at. Linux only.
"""

import argparse
import asyncio
import os
import resource
import stat
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

import anyio

from tests.support.harness import Served, WireClient, serve, stdio_server
from tests.support.mcp_peers.web_peer import WebPeer

WARM_UP = 10
SETTLE_S = 60.0
STARTED = "mcpServer/startupStatus/updated"


@dataclass(frozen=True)
class Left:
    """What a process holds at one moment."""

    children: int
    descriptors: Counter[str]
    tasks: int
    threads: int


def count(loaded: int, others: Set[str]) -> Left:
    """Count what this process holds, without children that it had before."""
    return Left(
        children=len(_children() - others),
        descriptors=Counter(map(_kind, os.listdir("/proc/self/fd"))),
        tasks=len(asyncio.all_tasks()),
        threads=loaded,
    )


def _children() -> set[str]:
    tasks = Path("/proc/self/task").iterdir()
    return {pid for task in tasks for pid in (task / "children").read_text().split()}


def _kind(descriptor: str) -> str:
    try:
        mode = os.stat(int(descriptor)).st_mode
    except OSError:
        return "closed"
    if stat.S_ISSOCK(mode):
        return "socket"
    return "pipe" if stat.S_ISFIFO(mode) else "file"


async def cycle(client: WireClient) -> None:
    """Open a thread, use both of its servers, and close it."""
    thread_id = (await client.call("thread/start", {}))["thread"]["id"]
    ready: set[str] = set()
    while ready != {"pipes", "web"}:
        message = await client.wait_for(STARTED, lambda p: p["threadId"] == thread_id)
        assert message["params"]["status"] in ("starting", "ready"), message
        if message["params"]["status"] == "ready":
            ready.add(message["params"]["name"])
    for server, tool in (("pipes", "plain"), ("web", "look")):
        params = {"threadId": thread_id, "server": server, "tool": tool, "arguments": {}}
        assert (await client.call("mcpServer/tool/call", params))["content"]
    await client.call("thread/archive", {"threadId": thread_id})


async def cycles(served: Served, number: int, width: int) -> None:
    """Run cycles, `width` of them side by side, each on a connection of its own."""
    left = iter(range(number))

    async def work() -> None:
        async with served.client() as client:
            for _ in left:
                await cycle(client)
                client.transcript.clear()

    async with anyio.create_task_group() as tasks:
        for _ in range(width):
            tasks.start_soon(work)


async def settled(served: Served, others: Set[str], wanted: Left | None = None) -> Left:
    """Count until it is what is wanted, or long enough.

    Without `wanted` until it stays, and only the watchdog over servers is left of the processes:
    those of closed threads take a moment to end.
    """
    async with served.client() as client:
        deadline = time.monotonic() + SETTLE_S
        before: Left | None = None
        while True:
            loaded = len((await client.call("thread/loaded/list", {}))["data"])
            now = count(loaded, others)
            is_first = wanted is None and now == before and now.children <= 1
            if is_first or now == wanted or time.monotonic() > deadline:
                return now
            before = now
            await asyncio.sleep(0.1)


async def soak(home: Path, number: int, width: int) -> tuple[Left, Left]:
    """Warm up, run the cycles, and return what was held before and after."""
    others = _children()
    async with WebPeer().serve() as web:
        config = f'{stdio_server("pipes")}[mcp_servers.web]\nurl = "{web.url}"\n'
        async with serve(home, config=config) as served:
            await cycles(served, WARM_UP, width)
            # The first list loads what serves it, in a task that then waits for another request.
            await settled(served, others)
            before = await settled(served, others)
            await cycles(served, number, width)
            return before, await settled(served, others, before)


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--cycles", type=int, default=1000, help="default: %(default)s")
    parser.add_argument("--width", type=int, default=4, help="side by side (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as home:
        began = time.perf_counter()
        before, after = asyncio.run(soak(Path(home), options.cycles, options.width))
    print(f"before: {before}\nafter:  {after}")
    print(f"{options.cycles} cycles in {time.perf_counter() - began:.1f} s")
    print(f"most memory: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024} MiB")
    return 0 if before == after else 1


if __name__ == "__main__":
    sys.exit(main())
