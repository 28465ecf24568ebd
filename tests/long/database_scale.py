"""Breaks three servers of a database with a hundred turns open, and prints how long each takes.

python -m tests.long.database_scale [--clients 100] [--lease 10]

Each client has a thread, whose turns take a second, and delivers a signal before each of them.
In their order: a server is killed; one is cut off from PostgreSQL, silently; one is stopped for
30 s; PostgreSQL is crashed and started again; it is away for longer than a lease. Then what the
clients were told is compared with the logs (`tests/support/fleet/checker.py`). The exit status
is 1 if anything is lost, doubled or out of place, or if a thread moved that should have stayed.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Coroutine
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg

from tests.support.fleet.checker import faults_of
from tests.support.fleet.faults import killed, restarted, silenced, stopped
from tests.support.fleet.load import Told, load_on
from tests.support.fleet.nodes import Fleet, FleetNode, fleet_of
from tests.support.postgresql import Cluster, name_of, prepare, running_cluster

NODES = 3
TURN_S = 1.0
STOPPED_S = 30.0
LOOK_S = 0.05
OWNERS = "SELECT id, owner FROM threads WHERE owner IS NOT NULL"
OPEN = (
    "SELECT t.id, t.owner, t.epoch FROM threads t JOIN nodes n ON n.id = t.owner "
    "WHERE n.pid = %s AND NOT n.dead AND t.has_work"
)


class _Run:
    """One run, with the database asked beside it."""

    def __init__(self, fleet: Fleet, told: Told, administrator: str, clients: int) -> None:
        self._fleet = fleet
        self._told = told
        self._administrator = administrator
        self._clients = clients

    def _ask(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._administrator, autocommit=True) as connection:
            return connection.execute(statement.encode(), values).fetchall()

    def _epochs(self, threads: list[UUID]) -> dict[UUID, int]:
        statement = "SELECT id, epoch FROM threads WHERE id = ANY(%s)"
        return dict(self._ask(statement, threads))

    def _owners(self) -> dict[UUID, UUID]:
        return dict(self._ask(OWNERS))

    async def takeover(self, name: str, node: FleetNode, fault: Coroutine[Any, Any, None]) -> None:
        """Print how long it takes until all threads at work of a server have another one."""
        assert node.running is not None
        rows = await asyncio.to_thread(self._ask, OPEN, node.running.process.pid)
        before = {thread: epoch for thread, _, epoch in rows}
        began_s = time.monotonic()
        breaking = asyncio.create_task(fault)
        left = set(before)
        while left:
            await asyncio.sleep(LOOK_S)
            now = await asyncio.to_thread(self._epochs, list(left))
            left -= {thread for thread, epoch in now.items() if epoch > before[thread]}
        taken_s = time.monotonic() - began_s
        await breaking
        await self._told.more_turns(2 * self._clients)
        print(f"{name}: {len(before)} threads at work taken over in {taken_s:.1f} s", flush=True)

    async def stays(self, name: str, seconds: float) -> list[str]:
        """Print how long PostgreSQL's absence is felt; returns which threads have moved."""
        before = await asyncio.to_thread(self._owners)
        ended, interrupted = self._told.progress, self._interrupted()
        began_s = time.monotonic()
        await restarted(self._fleet, self._fleet.nodes[0], seconds)
        away_s = time.monotonic() - began_s
        last = max(self._told.progress - ended, 0)
        await self._told.more_turns(1)
        again_s = time.monotonic() - began_s
        await self._told.more_turns(2 * self._clients)
        after = await asyncio.to_thread(self._owners)
        moved = [str(one) for one, owner in before.items() if after.get(one) != owner]
        print(
            f"{name}: away for {away_s:.1f} s ({last} turns ended meanwhile), the next turn ended "
            f"{again_s - away_s:.1f} s later; {self._interrupted() - interrupted} turns "
            f"interrupted, {len(moved)} of {len(before)} threads moved",
            flush=True,
        )
        return [f"{name}: thread {one} has moved" for one in moved]

    def _interrupted(self) -> int:
        return list(self._told.ended.values()).count("interrupted")


async def _main(clients: int, lease_s: int, cluster: Cluster, url: str) -> int:
    administrator = cluster.url(name_of(url), "postgres")
    longer_s = lease_s + 5.0
    with tempfile.TemporaryDirectory() as folder:
        async with fleet_of(NODES, cluster, url, Path(folder), lease_s=lease_s) as fleet:
            async with load_on(fleet, clients, turn_s=TURN_S) as told:
                run = _Run(fleet, told, administrator, clients)
                await told.more_turns(3 * clients)
                first, second, third = fleet.nodes
                await run.takeover("killed", first, killed(fleet, first, 8.0))
                await run.takeover("cut off", second, silenced(fleet, second, longer_s))
                await run.takeover("stopped", third, stopped(fleet, third, STOPPED_S))
                found = await run.stays("restarted", 0.0)
                found += await run.stays("away for longer than a lease", longer_s)
                await told.more_turns(3 * clients)
            assert told.ran is not None
            ran = len(told.ran.read_text().splitlines())
            found += faults_of(administrator, told)
    print(
        f"{len(told.accepted)} threads, {len(told.ended)} turns seen to their end, "
        f"{len(told.stages)} signals acknowledged, {ran} commands begun"
    )
    print("\n".join(found) or "clean")
    return 1 if found else 0


def main() -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=100, help="(default: 100)")
    parser.add_argument("--lease", type=int, default=10, help="in seconds (default: 10)")
    options = parser.parse_args()
    with running_cluster(fsync=True) as cluster:
        prepare(cluster)
        with cluster.database() as url:
            return asyncio.run(_main(options.clients, options.lease, cluster, url))


if __name__ == "__main__":
    sys.exit(main())
