"""Breaks three servers of a database with a hundred turns open, and prints how long each takes.

python -m tests.long.database_scale [--clients 100] [--signals 1000] [--lease 10]

Each client has a thread, with a turn that waits in a command or in an answer of the model while a
fault lasts, and signals are delivered to all threads over all servers meanwhile. In their order: a
server is killed; one is cut off from PostgreSQL and from what others ask it, silently; one is
stopped for 30 s; PostgreSQL is crashed and started again; it is away for longer than a lease. After
each, turns go on. What the clients were told is compared with the logs at the end
(`tests/support/fleet/checker.py`). One table has the figures. The exit status is 1 if anything is
lost, doubled or out of place, if a turn or a thread is not where it should be, or if threads were
taken over later than they should be (`KILLED_S`, `AFTER_LEASE_S`); what is wrong is named. On two
idle cores it takes about five minutes.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg

from tests.support.fleet.checker import faults_of
from tests.support.fleet.faults import Fault, killed, restarted, silenced, stopped
from tests.support.fleet.load import (
    LOST,
    PAUSE_S,
    Hold,
    OpenTurn,
    Told,
    deliver,
    is_expected,
    load_on,
)
from tests.support.fleet.nodes import Fleet, FleetNode, fleet_of
from tests.support.harness import WireError
from tests.support.postgresql import Cluster, name_of, prepare, running_cluster

NAMES = ("killed", "cut off", "stopped", "restarted", "away")
NODES = 3
KILLED_S = 5.0
"""Until all threads at work of a process that died have another owner."""
AFTER_LEASE_S = 2.0
"""Likewise of a server that says nothing any more, after its lease."""
REPLACED_S = 8.0
"""After which another server is started in the place of the one that was killed."""
STOPPED_S = 30.0
LOOK_S = 0.05
BOUND_S = 240.0
"""For what must happen at last."""

THREADS = "SELECT id::text, owner::text, epoch, has_work FROM threads"
EPOCHS = "SELECT id::text, epoch FROM threads"
NODE = "SELECT id::text FROM nodes WHERE pid = %s AND NOT dead"
LIVES = "SELECT 1 FROM nodes WHERE id = %s AND NOT dead"


@dataclass(frozen=True)
class _Before:
    """What there is at the moment of a fault."""

    open: dict[str, OpenTurn]
    owners: dict[str, str | None]
    epochs: dict[str, int]
    busy: list[str]
    """Threads with an open turn."""
    in_command: int
    """Turns that wait in a command; the others wait in the model."""


@dataclass
class _Signals:
    """Signals that are delivered while a fault lasts."""

    acknowledged: int = 0
    in_time: int = 0
    """Of these, before the fault was over."""


@dataclass
class _Row:
    """A line of the table."""

    fault: str
    open_turns: str
    dead_s: str = "-"
    again_s: str = "-"
    goal_s: str = "-"
    turns: str = ""
    signals: str = ""
    processor_s: str = ""


class _Run:
    """One run, with the database asked beside it."""

    def __init__(
        self, fleet: Fleet, told: Told, hold: Hold, administrator: str, signals: int
    ) -> None:
        self._fleet = fleet
        self._told = told
        self._hold = hold
        self._administrator = administrator
        self._signals = signals
        self.rows: list[_Row] = []
        self.wrong: list[str] = []

    def _ask(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._administrator, autocommit=True) as connection:
            return connection.execute(statement.encode(), values).fetchall()

    async def _hold_all(self, clients: int) -> _Before:
        """Have a turn of each client wait."""
        assert self._told.ran is not None
        begun = len(self._told.ran.read_text().splitlines())
        self._hold.close()
        async with asyncio.timeout(BOUND_S):
            while True:
                rows = await asyncio.to_thread(self._ask, THREADS)
                busy = [row[0] for row in rows if row[3]]
                now = dict(self._told.open)
                if len(now) == len(busy) == clients:
                    break
                await asyncio.sleep(LOOK_S)
        return _Before(
            now,
            {row[0]: row[1] for row in rows},
            {row[0]: row[2] for row in rows},
            busy,
            len(self._told.ran.read_text().splitlines()) - begun,
        )

    async def inject(self, name: str, lease_s: int) -> None:
        """Inject the fault of this name, and see what becomes of it."""
        longer_s, goal_s = lease_s + 5.0, lease_s + AFTER_LEASE_S
        match name:
            case "killed":
                await self._takeover(name, 0, killed, REPLACED_S, KILLED_S)
            case "cut off":
                await self._takeover(name, 1, silenced, longer_s, goal_s)
            case "stopped":
                await self._takeover(name, 2, stopped, STOPPED_S, goal_s)
            case "restarted":
                await self._stays(name, 0.0, "completed")
            case "away":
                await self._stays(name, longer_s, "interrupted")

    # Faults of one server.

    async def _takeover(
        self,
        name: str,
        number: int,
        fault: Fault,
        seconds: float,
        goal_s: float,
    ) -> None:
        """Inject a fault of one server, and see that others take its threads over."""
        node, clients = self._fleet.nodes[number], len(self._told.accepted)
        assert node.running is not None
        before = await self._hold_all(clients)
        ((node_id,),) = await asyncio.to_thread(self._ask, NODE, node.running.process.pid)
        lost = {one for one in before.busy if before.owners[one] == node_id}
        others = [one for one in self._fleet.nodes if one is not node]
        used_s = _processor_s(others)
        began_s = time.monotonic()
        breaking = asyncio.create_task(_injected(fault, self._fleet, node, seconds))
        signals = asyncio.create_task(self._deliver(name, seconds, breaking))
        dead_s = taken_s = 0.0
        times: list[float] = []
        left = set(lost)
        async with asyncio.timeout(BOUND_S):
            while left:
                await asyncio.sleep(LOOK_S)
                if not dead_s and not await asyncio.to_thread(self._ask, LIVES, node_id):
                    dead_s = time.monotonic() - began_s
                now = dict(await asyncio.to_thread(self._ask, EPOCHS))
                taken_s = time.monotonic() - began_s
                taken = {one for one in left if now[one] > before.epochs[one]}
                times += [taken_s] * len(taken)
                left -= taken
        used_s = _processor_s(others) - used_s
        await breaking
        over_s = time.monotonic()
        await self._wait_for_ends(
            name,
            [one for one, at in before.open.items() if at.node == number and at.thread_id in lost],
        )
        told_s = time.monotonic() - over_s
        delivered = await signals
        await self._go_on(clients)
        statuses = self._statuses(before, lambda at: at.thread_id in lost and at.node != number)
        undisturbed = self._statuses(
            before, lambda at: at.thread_id not in lost and at.node != number
        )
        self._expect(
            name, "turns of the lost server, as others' clients saw", statuses, "interrupted"
        )
        self._expect(name, "turns of the other servers", undisturbed, "completed")
        if taken_s > goal_s:
            self.wrong.append(f"{name}: taken over in {taken_s:.1f} s, and not in {goal_s:g} s")
        self.rows.append(
            _Row(
                name,
                f"{len(before.open)} ({before.in_command} in commands), {len(lost)} of the server",
                f"{dead_s:.1f}",
                f"{times[0]:.1f}-{taken_s:.1f}" if times else "-",
                f"{goal_s:g}",
                f"{_shown(statuses)} there, {_shown(undisturbed)} elsewhere; its own clients "
                f"were told {told_s:.1f} s after the end",
                f"{delivered.in_time} of {delivered.acknowledged}",
                f"{used_s:.1f}",
            )
        )
        print(self.rows[-1], flush=True)

    async def _wait_for_ends(self, name: str, turns: Iterable[str]) -> None:
        """Wait until clients wait for these turns no more: they ended, or the thread was closed."""
        left = set(turns)
        try:
            async with asyncio.timeout(BOUND_S):
                while left & self._told.open.keys():
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            self.wrong.append(f"{name}: {len(left & self._told.open.keys())} clients were not told")

    # Faults of PostgreSQL.

    async def _stays(self, name: str, seconds: float, status: str) -> None:
        """Have PostgreSQL crash and be away, and see that threads stay, and how turns end."""
        node, clients = self._fleet.nodes[0], len(self._told.accepted)
        before = await self._hold_all(clients)
        used_s = _processor_s(self._fleet.nodes)
        acknowledged = len(self._told.stages)
        breaking = asyncio.create_task(restarted(self._fleet, node, seconds))
        signals = asyncio.create_task(self._deliver(name, seconds + REPLACED_S, breaking))
        fault_s = -time.monotonic()
        await breaking
        over_s = time.monotonic()
        fault_s += over_s
        async with asyncio.timeout(BOUND_S):
            while len(self._told.stages) == acknowledged:
                await asyncio.sleep(LOOK_S)
        again_s = time.monotonic() - over_s
        used_s = _processor_s(self._fleet.nodes) - used_s
        delivered = await signals
        if status == "interrupted":
            await self._wait_for_ends(name, before.open)
        await self._go_on(clients)
        statuses = self._statuses(before, lambda at: True)
        self._expect(name, "turns", statuses, status)
        now = await asyncio.to_thread(self._ask, THREADS)
        moved = [
            row[0] for row in now if row[1:3] != (before.owners[row[0]], before.epochs[row[0]])
        ]
        self.wrong += [f"{name}: thread {one} has moved" for one in moved]
        self.rows.append(
            _Row(
                name,
                f"{len(before.open)} ({before.in_command} in commands)",
                again_s=f"{again_s:.1f}",
                turns=f"{_shown(statuses)}; {len(moved)} threads moved; away for {fault_s:.1f} s",
                signals=f"{delivered.in_time} of {delivered.acknowledged}",
                processor_s=f"{used_s:.1f}",
            )
        )
        print(self.rows[-1], flush=True)

    # What goes on meanwhile, and afterwards.

    async def _go_on(self, clients: int) -> None:
        self._hold.open()
        await self._told.more_turns(2 * clients)

    async def _deliver(self, name: str, seconds: float, fault: "asyncio.Task[None]") -> _Signals:
        """Deliver signals to all threads over all servers, evenly while a fault lasts."""
        began_s, signals = time.monotonic(), _Signals()
        threads = list(self._told.accepted)
        of_each = self._signals // len(threads)

        async def send(order: int, thread_id: str) -> None:
            number, node = 0, order
            while number < of_each:
                running = self._fleet.nodes[node % NODES].running
                node += 1
                try:
                    if running is not None:
                        async with running.client() as client:
                            while number < of_each:
                                at_s = began_s + seconds * number / of_each
                                await asyncio.sleep(max(0.0, at_s - time.monotonic()))
                                sender = f"{name} to {order},"
                                await deliver(client, self._told, thread_id, sender, number)
                                number += 1
                                signals.acknowledged += 1
                                signals.in_time += not fault.done()
                except WireError as exc:
                    if not is_expected(exc):
                        self.wrong.append(f"{name}: {exc.message}: {exc.data}")
                        return
                except LOST:
                    pass
                await asyncio.sleep(PAUSE_S)

        await asyncio.gather(*(send(*one) for one in enumerate(threads)))
        return signals

    def _statuses(self, before: _Before, counts: Callable[[OpenTurn], bool]) -> "Counter[str]":
        """Count how clients saw turns end that were open."""
        return Counter(
            self._told.ended.get(turn_id, "not seen")
            for turn_id, at in before.open.items()
            if counts(at)
        )

    def _expect(self, name: str, what: str, statuses: "Counter[str]", status: str) -> None:
        if set(statuses) - {status}:
            self.wrong.append(f"{name}: {what}: {_shown(statuses)}, all should be {status}")


async def _injected(fault: Fault, fleet: Fleet, node: FleetNode, seconds: float) -> None:
    await fault(fleet, node, seconds)


def _shown(statuses: "Counter[str]") -> str:
    return ", ".join(f"{count} {status}" for status, count in statuses.items()) or "none"


def _processor_s(nodes: Sequence[FleetNode]) -> float:
    """Return the processor time of servers so far."""
    ticks = 0
    for node in nodes:
        if node.running is not None:
            stat = Path(f"/proc/{node.running.process.pid}/stat").read_text()
            ticks += sum(map(int, stat.rpartition(")")[2].split()[11:13]))
    return ticks / os.sysconf("SC_CLK_TCK")


def _print_table(rows: Sequence[_Row]) -> None:
    names = ("fault", "turns open", "dead", "again", "goal", "turns", "signals", "processor")
    print(f"\n| {' | '.join(names)} |\n{'| --- ' * len(names)}|")
    for row in rows:
        print(f"| {' | '.join(vars(row).values())} |")
    print(
        "dead: seconds until the server counts as dead; again: until the first and the last thread "
        "at work has another owner, or until PostgreSQL, which is back, has acknowledged a signal; "
        "signals: acknowledged during the fault, and at last; processor: seconds of the servers "
        "meanwhile"
    )


async def _main(
    clients: int, count: int, lease_s: int, names: Sequence[str], cluster: Cluster, url: str
) -> int:
    administrator = cluster.url(name_of(url), "postgres")
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        async with fleet_of(
            NODES, cluster, url, Path(folder), lease_s=lease_s, have_ways=True
        ) as fleet:
            hold = Hold(fleet.folder)
            async with load_on(fleet, clients, hold=hold) as told:
                run = _Run(fleet, told, hold, administrator, count)
                await told.more_turns(5 * clients)
                for name in names:
                    await run.inject(name, lease_s)
            assert told.ran is not None
            ran = len(told.ran.read_text().splitlines())
            found = run.wrong + faults_of(administrator, told)
    _print_table(run.rows)
    print(
        f"{len(told.accepted)} threads, {len(told.ended)} turns seen to their end, "
        f"{len(told.stages)} signals acknowledged, {ran} commands begun; "
        f"{time.monotonic() - began_s:.0f} s"
    )
    print("\n".join(found) or "clean")
    return 1 if found else 0


def main() -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=100, help="(default: 100)")
    parser.add_argument("--signals", type=int, default=1000, help="of a fault (default: 1000)")
    parser.add_argument("--lease", type=int, default=10, help="in seconds (default: 10)")
    parser.add_argument(
        "--faults", nargs="+", choices=NAMES, default=NAMES, help="(default: all, in this order)"
    )
    options = parser.parse_args()
    with running_cluster(fsync=True) as cluster:
        prepare(cluster)
        with cluster.database() as url:
            wanted = options.clients, options.signals, options.lease, options.faults
            return asyncio.run(_main(*wanted, cluster, url))


if __name__ == "__main__":
    sys.exit(main())
