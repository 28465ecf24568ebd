"""Memory of a server: once idle after its start, after its first turn, and for each connection.

python -m tests.bench.processor.memory [TREE…] [--clients N]

A TREE is a folder with this repository (default: this one). What is shown is resident memory, in
MiB, and KiB for a connection whose client has initialized. Modules are compiled once before, as an
installation has them. These are figures to look at, not tests.
"""

import argparse
import asyncio
import os
import shlex
import sys
import tempfile
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.bench.model import bench_model
from tests.bench.server import Target, resident_mb, started
from tests.support.clients.lean import lean_client
from tests.support.paths import ROOT

IDLE_SHARE = 0.02
"""Of a core, in each of as many seconds as are counted: then a server has loaded what it loads."""
IDLE_S = 4


def wait_until_idle(pid: int) -> None:
    """Return when a process has done nothing for IDLE_S seconds."""
    idle, before = 0, used_s(pid)
    while idle < IDLE_S:
        time.sleep(1)
        now = used_s(pid)
        idle = idle + 1 if now - before < IDLE_SHARE else 0
        before = now


def used_s(pid: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(target: Target, clients: int) -> tuple[float, float, float]:
    """Return the memory after the start and after a turn, and KiB of a connection."""
    assert target.pid is not None
    after_start = resident_mb(target.pid)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(lean_client(target.url))
        thread = await client.call("thread/start", {"config": target.config})
        await client.turn(thread["thread"]["id"], "hello")
        wait_until_idle(target.pid)
        after_turn = resident_mb(target.pid)
        for _ in range(clients):
            await stack.enter_async_context(lean_client(target.url))
        wait_until_idle(target.pid)
        of_connection = (resident_mb(target.pid) - after_turn) * 1024 / max(clients, 1)
    return after_start, after_turn, of_connection


def measure_tree(tree: Path, config: dict[str, Any], clients: int) -> tuple[float, float, float]:
    """Start a server of a tree twice, the first time for its compiled modules, and measure it."""
    with tempfile.TemporaryDirectory() as compiled:
        environment = [f"PYTHONPATH={tree.resolve()}", f"PYTHONPYCACHEPREFIX={compiled}"]
        words = [sys.executable, "-m", "app_server.cli.entry", "--listen", "ws://127.0.0.1:{port}"]
        command = shlex.join(["env", "-u", "PYTHONDONTWRITEBYTECODE", *environment, *words])
        for _ in range(2):
            with started(command, config, starts=1) as target:
                assert target.pid is not None
                wait_until_idle(target.pid)
                figures = asyncio.run(measure(target, clients))
    return figures


def main() -> None:
    """Measure the trees one after another."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("trees", nargs="*", metavar="TREE", type=Path, default=[ROOT])
    parser.add_argument("--clients", type=int, default=200, help="connections (default: 200)")
    options = parser.parse_args()
    print(f"{'after start, MiB':>18}{'after a turn, MiB':>19}{'a connection, KiB':>19}")
    with bench_model() as config:
        for tree in options.trees:
            start, turn, connection = measure_tree(tree, config, options.clients)
            print(f"{start:18.1f}{turn:19.1f}{connection:19.1f}  {tree}", flush=True)


if __name__ == "__main__":
    main()
