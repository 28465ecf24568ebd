"""What occupies the event loop of a server longest, under a typical load.

python -m tests.bench.processor.loop [--clients N] [--turns N] [--deltas N] [--rows N]

A server of its own process, a model that answers at once, clients that start a thread each, run
turns, and list and read threads in between. What a row says is in
tests/bench/processor/callbacks.py. These are figures to look at, not tests.
"""

import argparse
import asyncio
import contextlib
import shlex
import tempfile
from pathlib import Path
from typing import Any

from tests.bench.model import bench_model
from tests.bench.processor.callbacks import watched
from tests.bench.server import started
from tests.support.clients.lean import LeanClient, lean_client


async def converse(url: str, config: dict[str, Any], turns: int, deltas: int) -> None:
    """Be one client."""
    async with lean_client(url) as client:
        thread_id = (await client.call("thread/start", {"config": config}))["thread"]["id"]
        for _ in range(turns):
            await client.turn(thread_id, f"events {deltas}")
            client.events.clear()
            await look_around(client, thread_id)


async def look_around(client: LeanClient, thread_id: str) -> None:
    """Ask what an editor asks between turns."""
    await client.call("thread/list", {"limit": 25})
    await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
    await client.call("model/list", {})
    await client.call("config/read", {})


async def load(url: str, config: dict[str, Any], options: argparse.Namespace) -> None:
    """Be all clients at the same time."""
    async with asyncio.TaskGroup() as tasks:
        for _ in range(options.clients):
            tasks.create_task(converse(url, config, options.turns, options.deltas))


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=10)
    parser.add_argument("--turns", type=int, default=10, help="of each client (default: 10)")
    parser.add_argument("--deltas", type=int, default=500, help="of each turn (default: 500)")
    parser.add_argument("--rows", type=int, default=15)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        config = stack.enter_context(bench_model())
        file = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "longest"
        command = shlex.join(watched(file, options.rows)) + " --listen ws://127.0.0.1:{port}"
        with started(command, config, starts=1) as target:
            asyncio.run(load(target.url, config, options))
        print(file.read_text())


if __name__ == "__main__":
    main()
