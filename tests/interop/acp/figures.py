"""Prints what it takes until the first words of an answer: through the adapter, and natively.

python -m tests.interop.acp.figures --adapter PATH [--turns 5]

An editor starts its agent, opens a session and prompts, with a model that answers at once: through
the adapter with Node.js, with `app-server acp` and a server of its own, with `app-server acp`
beside a server that runs, and, to compare, without ACP. One after the other, by turns; prints
medians of seconds, of seconds of the processor, and of megabytes (Pss), of all processes that the
editor has started. On a busy machine the last two count. PATH is `dist/index.js` of codex-acp.
Source: docs/figures.md, "The Agent Client Protocol beside its adapter".
"""

import argparse
import asyncio
import os
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, TypeAlias

import anyio

from tests.interop.acp.editor import VERSION, editor, text
from tests.support.harness import write_config
from tests.support.model import ScriptedModel, says
from tests.support.processes import EXECUTABLE, memory_mb, running, started, tree_of

SETTLE_S = 1.0
Figures: TypeAlias = tuple[float, float, float]
"""Seconds, seconds of the processor, megabytes."""
Way: TypeAlias = Callable[[Path, Path], Coroutine[Any, Any, Figures]]
"""Takes a home and a folder."""


def processor_s(*pids: int) -> float:
    """Return what processes have used of the processor."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


async def by_acp(adapter: Sequence[str] | None, home: Path, folder: Path) -> Figures:
    """Ask through the adapter, or natively."""
    began = perf_counter()
    async with editor(adapter, EXECUTABLE, home, folder) as acp:
        await acp.call("initialize", protocolVersion=VERSION, clientCapabilities={})
        opened = await acp.call("session/new", cwd=str(folder), mcpServers=[])
        session = opened["sessionId"]
        await acp.request("session/prompt", sessionId=session, prompt=text("Hello."))
        await acp.update("agent_message_chunk")
        took_s = perf_counter() - began
        await asyncio.sleep(SETTLE_S)
        pids = tree_of(acp.pid)
        return took_s, processor_s(*pids), memory_mb(*pids)


async def beside_a_server(home: Path, folder: Path) -> Figures:
    """Ask natively, where a server runs."""
    async with running(home) as server:
        os.environ["APP_SERVER_URL"] = server.urls[0]
        try:
            return await by_acp(None, home, folder)
        finally:
            del os.environ["APP_SERVER_URL"]


async def without_acp(home: Path, folder: Path) -> Figures:
    """Ask as a client of Codex does, a server that is started for it."""
    began = perf_counter()
    async with started(home) as server, server.client() as client:
        thread_id = await client.start_thread(cwd=str(folder))
        parts = [{"type": "text", "text": "Hello."}]
        await client.call("turn/start", {"threadId": thread_id, "input": parts})
        await client.wait_for("item/agentMessage/delta")
        took_s = perf_counter() - began
        await asyncio.sleep(SETTLE_S)
        return took_s, processor_s(server.process.pid), memory_mb(server.process.pid)


async def measure(ways: dict[str, Way], turns: int) -> None:
    """Try the ways by turns, and print medians."""
    found: dict[str, list[Figures]] = {name: [] for name in ways}
    for _ in range(turns):
        for name, way in ways.items():
            with tempfile.TemporaryDirectory() as work:
                home, folder = Path(work, "home"), Path(work, "folder")
                folder.mkdir()
                async with ScriptedModel().serve() as model:
                    write_config(home, model.url, "model_context_window = 100000\n")
                    model.scripts += [says("Hello.")] * 2
                    found[name].append(await way(home, folder))
    for name, figures in found.items():
        took_s, used_s, memory = (median(each) for each in zip(*figures, strict=True))
        print(f"{name}: {took_s:.2f} s, {used_s:.2f} s of the processor, {memory:.1f} MB")


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop.acp.figures")
    parser.add_argument("--adapter", metavar="PATH", required=True)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    ways: dict[str, Way] = {
        "codex-acp": partial(by_acp, ["node", options.adapter]),
        "app-server acp, a server of its own": partial(by_acp, None),
        "app-server acp, beside a server": beside_a_server,
        "without ACP": without_acp,
    }
    anyio.run(measure, ways, options.turns)


if __name__ == "__main__":
    main()
