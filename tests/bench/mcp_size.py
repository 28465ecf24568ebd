"""Figures of MCP servers with thousands of tools, of any number of app-servers in one run.

python -m tests.bench.mcp_size TARGET [TARGET…] [--sizes NxN…] [--rounds N]

TARGETs are commands as in tests/bench/server.py; the first one is what the others are divided by.
A size is a number of servers (tests/support/mcp_peers/mcp_peer.py, which answers from a file) and
the tools of each. Measured are the time and the processor time, of the target without its MCP
servers, from the start of a thread until all tools are listed, of a status list of all of them, and
of a turn that declares them, and of a turn that searches them instead, with a model that can
(SEARCHER). Then comes memory. A target that takes fewer tools has no figures.

These are figures to look at, not tests: nothing passes or fails.
"""

import argparse
import asyncio
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from app_server.clients.bench.run import processor_seconds
from tests.bench.model import bench_model
from tests.bench.server import Client, Target, print_table, started
from tests.support.paths import MCP_PEER
from tests.support.processes import memory_mb, tree_of

SEARCHER = {"model": "gpt-5.5", "model_supports_search_tool": True}
"""Settings of a model that searches: the reference knows it by its name."""
LISTED_S = 60.0
POLL_S = 0.005


def tool(number: int) -> dict[str, Any]:
    """Describe a tool as many are: a sentence, and three parameters."""
    return {
        "name": f"{['read', 'write', 'find', 'remove'][number % 4]}_thing_{number}",
        "description": f"Works on thing number {number} of the warehouse, and returns it.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "Name of the thing."},
                "count": {"type": "integer", "description": "How many of them."},
                "options": {"type": "array", "items": {"type": "string"}},
            },
            "required": ["name"],
        },
    }


def write_servers(folder: Path, servers: int, tools: int) -> str:
    """Write the lists of servers, of so many tools each; gives the text of their tables."""
    text = ""
    for server in range(servers):
        listed = [tool(number) for number in range(server * tools, (server + 1) * tools)]
        file = folder / f"{server}_of_{servers}_with_{tools}.json"
        file.write_text(json.dumps({"tools/list": {"tools": listed}}))
        text += (
            f"[mcp_servers.server{server}]\ncommand = {json.dumps(sys.executable)}\n"
            f"args = {json.dumps([str(MCP_PEER), 'answers', str(file)])}\n"
            f"startup_timeout_sec = 60\n"
        )
    return text


def own_processes(target: Target) -> list[int]:
    """Return the processes of a target that are none of its MCP servers."""
    assert target.pid is not None
    own = []
    for pid in tree_of(target.pid):
        # Processes come and go.
        with suppress(OSError):
            if str(MCP_PEER) not in Path(f"/proc/{pid}/cmdline").read_text():
                own.append(pid)
    return own


async def measured(
    target: Target, name: str, rounds: int, work: Callable[[], Awaitable[object]]
) -> None:
    """Add the medians of both times to the figures of a target."""
    durations, used = [], []
    for _ in range(rounds):
        processes = own_processes(target)
        before = [processor_seconds(pid) or 0.0 for pid in processes]
        began = time.perf_counter()
        await work()
        durations.append(time.perf_counter() - began)
        after = [processor_seconds(pid) or 0.0 for pid in processes]
        used.append(sum(after) - sum(before))
    target.figures[f"{name}, ms"] = statistics.median(durations) * 1000
    target.figures[f"{name}, processor ms"] = statistics.median(used) * 1000


async def first_listing(target: Target, client: Client, servers: int) -> str:
    """Start a thread, and wait until all its servers have listed their tools.

    Raises:
        RuntimeError: one has more than the target takes, or did not start.
    """
    thread_id = await target.thread(client)
    async with asyncio.timeout(LISTED_S):
        while True:
            steps = [step for step in client.server_steps if step["threadId"] == thread_id]
            if failed := [step["error"] for step in steps if step["status"] == "failed"]:
                raise RuntimeError(failed[0])
            if sum(step["status"] == "ready" for step in steps) == servers:
                return thread_id
            await asyncio.sleep(POLL_S)


async def status_list(client: Client, thread_id: str) -> None:
    """Read the whole list, page by page."""
    cursor = None
    while True:
        params = {"threadId": thread_id, "detail": "toolsAndAuthOnly", "cursor": cursor}
        cursor = (await client.call("mcpServerStatus/list", params)).get("nextCursor")
        if cursor is None:
            return


async def measure(target: Target, kind: str, rounds: int) -> None:
    """Fill in the figures of a target with one kind of servers."""
    async with target.client() as client:
        servers = int(kind.split("x")[0])
        try:
            thread_id = await first_listing(target, client, servers)
        except RuntimeError as exc:
            print(f"{kind}: {target.name}: {exc}", file=sys.stderr)
            return
        works: dict[str, Callable[[], Awaitable[object]]] = {
            "first listing": partial(first_listing, target, client, servers),
            "status list": partial(status_list, client, thread_id),
            "turn": partial(client.turn, thread_id, "hello"),
        }
        await client.turn(thread_id, "warm up")
        for name, work in works.items():
            await measured(target, f"{kind}: {name}", rounds, work)
        declared, target.config = target.config, {**target.config, **SEARCHER}
        searching = await first_listing(target, client, servers)
        target.config = declared
        await client.turn(searching, "warm up")
        search = partial(client.turn, searching, "search find thing 1234 of the warehouse")
        await measured(target, f"{kind}: search", rounds, search)
    target.figures[f"{kind}: memory, MB"] = memory_mb(*own_processes(target))


async def main(options: argparse.Namespace) -> None:
    """Measure every target in turn."""
    with bench_model() as model, tempfile.TemporaryDirectory() as folder:
        merged: list[Target] = []
        for kind in options.sizes:
            settings = write_servers(Path(folder), *map(int, kind.split("x")))
            for number, command in enumerate(options.targets):
                print(f"measuring {kind} of {command}", file=sys.stderr)
                with started(command, model, 1, settings) as target:
                    await measure(target, kind, options.rounds)
                if len(merged) <= number:
                    merged.append(target)
                else:
                    merged[number].figures |= target.figures
        names = {name: math.nan for target in merged for name in target.figures}
        for target in merged:
            target.figures = names | target.figures
        print_table(merged)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="+", metavar="TARGET")
    parser.add_argument(
        "--sizes",
        nargs="+",
        default=["1x5000", "1x2000", "40x100"],
        help="servers and tools of each (default: 1x5000 1x2000 40x100)",
    )
    parser.add_argument("--rounds", type=int, default=5, help="of each figure (default: 5)")
    asyncio.run(main(parser.parse_args()))
