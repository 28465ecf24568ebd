"""Figures of `mcpServer/tool/call`, of any number of app-servers side by side in one run.

python -m tests.bench.mcp TARGET [TARGET…] [--rounds N] [--passes N] [--libraries PYTHON]

TARGETs are as in tests/bench/server.py; the first one is what the others are divided by. Each is
given three MCP servers of tests/support/mcp_peers that answer at once: a process on pipes
(`mcp_peer.py`), and two behind a URL, one of which answers in JSON and one in event streams
(`web_peer.py`). Those run beside the bench in a process of their own. Targets take turns, and are
warmed up with a tenth of the calls that are measured; a figure is the median of its passes. With a
PYTHON that has FastMCP (`python3 -m venv DIR`, then `DIR/bin/pip install fastmcp`) the same calls
are made by FastMCP's client and by that of the MCP SDK too, straight to the servers and with no
app-server between (`mcp_libraries.py`).

These are figures to look at, not tests: nothing passes or fails.
"""

import argparse
import asyncio
import json
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from app_server.clients.bench.run import processor_seconds
from tests.bench.server import Client, Target, print_table, started
from tests.support.mcp_peers.web_peer import WebPeer
from tests.support.paths import MCP_PEER

WIDTH = 32
READY_S = 30.0
LIBRARIES = ("fastmcp", "mcp")


async def many(call: Callable[[], Awaitable[Any]], rounds: int) -> tuple[float, float]:
    """Keep WIDTH calls in flight; returns calls per second, and their median duration in ms."""
    durations: list[float] = []
    left = iter(range(rounds))

    async def work() -> None:
        for _ in left:
            began = time.perf_counter()
            await call()
            durations.append(time.perf_counter() - began)

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(WIDTH)))
    return rounds / (time.perf_counter() - began), statistics.median(durations) * 1000


async def quantiles_ms(call: Callable[[], Awaitable[Any]], rounds: int) -> tuple[float, float]:
    """Return the median of a call's durations and their 99th percentile, in milliseconds."""
    durations = []
    for _ in range(rounds):
        began = time.perf_counter()
        await call()
        durations.append(time.perf_counter() - began)
    durations.sort()
    return statistics.median(durations) * 1000, durations[int(rounds * 0.99)] * 1000


async def until_connected(client: Client, thread_id: str) -> None:
    """Wait until every server of a thread has started."""
    params = {"threadId": thread_id, "detail": "toolsAndAuthOnly"}
    async with asyncio.timeout(READY_S):
        while True:
            listed = await client.call("mcpServerStatus/list", params)
            if all(entry["tools"] for entry in listed["data"]):
                return
            await asyncio.sleep(0.05)


async def measure(target: Target, rounds: int) -> dict[str, float]:
    """Return a target's figures."""
    figures: dict[str, float] = {}
    async with target.client() as client:
        thread_id = await target.thread(client)
        await until_connected(client, thread_id)
        for name, tool in (("stdio", "plain"), ("http", "look"), ("events", "look")):
            params = {"threadId": thread_id, "server": name, "tool": tool, "arguments": {}}

            async def call(params: dict[str, Any] = params) -> None:
                result = await client.call("mcpServer/tool/call", params)
                assert result["content"], result

            for _ in range(max(rounds // 10, 3)):
                await call()
            before = target.pid and processor_seconds(target.pid)
            p50, p99 = await quantiles_ms(call, rounds)
            figures[f"{name}, one at a time, p50 ms"] = p50
            figures[f"{name}, one at a time, p99 ms"] = p99
            figures[f"{name}, one at a time, calls/s"] = 1000 / p50
            if target.pid and before is not None and (after := processor_seconds(target.pid)):
                # A wrapper uses none: what it runs is another process.
                used_ms = (after - before) / rounds * 1000
                figures[f"{name}, one at a time, processor ms"] = used_ms or math.nan
            per_second, p50 = await many(call, rounds * 4)
            figures[f"{name}, {WIDTH} in flight, p50 ms"] = p50
            figures[f"{name}, {WIDTH} in flight, calls/s"] = per_second
    return figures


def of_library(name: str, options: argparse.Namespace, urls: Sequence[str]) -> dict[str, float]:
    """Return the figures of a library, measured in a process of its own."""
    program = Path(__file__).with_name("mcp_libraries.py")
    words = [name, options.rounds, WIDTH, MCP_PEER, *urls]
    # Without -P the modules beside the program would be taken for libraries.
    printed = subprocess.check_output([options.libraries, "-P", program, *map(str, words)])
    return dict(json.loads(printed))


async def serve_peer() -> None:
    """Run the servers behind a URL until killed; prints their URLs."""
    async with WebPeer().serve() as peer, WebPeer(in_events=True).serve() as in_events:
        print(peer.url, in_events.url, flush=True)
        await asyncio.get_running_loop().create_future()


async def main(options: argparse.Namespace) -> None:
    """Measure every target in turn."""
    peer = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.mcp", "--peer"], stdout=subprocess.PIPE, text=True
    )
    assert peer.stdout is not None
    try:
        http, events = peer.stdout.readline().split()
        config = {
            "model": "bench",
            "model_provider": "bench",
            "model_providers.bench": {"name": "bench", "base_url": "http://127.0.0.1:1/v1"},
            "mcp_servers.stdio": {"command": sys.executable, "args": [str(MCP_PEER)]},
            "mcp_servers.http": {"url": http},
            "mcp_servers.events": {"url": events},
        }
        with ExitStack() as stack:
            targets = [
                stack.enter_context(started(text, config, starts=1))
                if "{port}" in text
                else Target(text, text, config, None)
                for text in options.targets
            ]
            passes_of_libraries: dict[str, list[dict[str, float]]] = {}
            passes: list[list[dict[str, float]]] = [[] for _ in targets]
            libraries = [Target(name, "", {}, None) for name in LIBRARIES if options.libraries]
            for number in range(options.passes):
                print(f"pass {number + 1} of {options.passes}", file=sys.stderr)
                for target, measured in zip(targets, passes, strict=True):
                    measured.append(await measure(target, options.rounds))
                for library in libraries:
                    passed = of_library(library.name, options, (http, events))
                    passes_of_libraries.setdefault(library.name, []).append(passed)
            passes += passes_of_libraries.values()
            for target, measured in zip(targets + libraries, passes, strict=True):
                for name in measured[0]:
                    target.figures[name] = statistics.median(each[name] for each in measured)
        print_table(targets + libraries)
    finally:
        peer.kill()
        peer.wait()


def read_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--rounds", type=int, default=1000, help="calls a figure (default: 1000)")
    parser.add_argument("--passes", type=int, default=5, help="turns of a target (default: 5)")
    parser.add_argument("--libraries", metavar="PYTHON", help="has FastMCP, to compare with")
    parser.add_argument("--peer", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    given = read_arguments()
    asyncio.run(serve_peer() if given.peer else main(given))
