"""Faults, each injected from outside and healed again."""

import signal
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import TypeAlias

import anyio
import anyio.to_thread

from tests.support.fleet.nodes import LEASE_S, Fleet, FleetNode
from tests.support.postgresql import Cluster

LONGEST_S = LEASE_S + 2.0
"""A fault that is longer than a lease is another one than a shorter one."""
SHORT_S = 0.5

Fault: TypeAlias = Callable[[Fleet, FleetNode, float], Awaitable[None]]
"""Breaks a fleet, at one of its nodes where it is one of a node, and mends it after seconds."""


async def killed(fleet: Fleet, node: FleetNode, seconds: float) -> None:
    """Kill a server, and start one in its place."""
    await node.kill()
    await anyio.sleep(seconds)
    await node.start()


async def stopped(fleet: Fleet, node: FleetNode, seconds: float) -> None:
    """Stop a server, and wake it."""
    node.send_signal(signal.SIGSTOP)
    try:
        await anyio.sleep(seconds)
    finally:
        node.send_signal(signal.SIGCONT)


async def sessions_ended(fleet: Fleet, node: FleetNode, seconds: float) -> None:
    """End all connections to the database."""
    await anyio.to_thread.run_sync(fleet.cluster.end_sessions, fleet.database)


async def restarted(fleet: Fleet, node: FleetNode, seconds: float) -> None:
    """Crash PostgreSQL, and start it again."""
    await anyio.to_thread.run_sync(fleet.cluster.stop)
    await anyio.sleep(seconds)
    # Not in a worker thread, with whose end PostgreSQL would end.
    fleet.cluster.start()


async def cut_off(fleet: Fleet, node: FleetNode, seconds: float) -> None:
    """Cut a server off from PostgreSQL."""
    node.proxy.cut()
    await anyio.sleep(seconds)
    node.proxy.heal()


async def delayed(fleet: Fleet, node: FleetNode, seconds: float) -> None:
    """Delay all that a server and PostgreSQL tell each other."""
    node.proxy.delay_s = 0.1
    await anyio.sleep(seconds)
    node.proxy.heal()


async def unanswered(fleet: Fleet, node: FleetNode, seconds: float) -> None:
    """Lose what PostgreSQL answers a server, and nothing of what it is asked."""
    node.proxy.swallows_answers = True
    await anyio.sleep(seconds)
    node.proxy.heal()


async def silenced(fleet: Fleet, node: FleetNode, seconds: float) -> None:
    """Lose all that a server and PostgreSQL tell each other, and end no connection.

    So is what other servers ask it, where they reach it through a proxy.
    """
    proxies = [node.proxy] if node.way is None else [node.proxy, node.way]
    for proxy in proxies:
        proxy.silence()
    await anyio.sleep(seconds)
    for proxy in proxies:
        proxy.heal()


async def replaced(fleet: Fleet, node: FleetNode, seconds: float) -> None:
    """Stop all servers as an upgrade does, one after the other, each back before the next."""
    for one in fleet.nodes:
        await one.stop()
        await one.start()


FAULTS: Mapping[str, Fault] = {
    "killed": killed,
    "stopped": stopped,
    "sessions ended": sessions_ended,
    "restarted": restarted,
    "cut off": cut_off,
    "delayed": delayed,
    "unanswered": unanswered,
    "silenced": silenced,
    "replaced": replaced,
}


async def promote(fleet: Fleet, standby: Cluster) -> None:
    """Lose PostgreSQL with its machine, and make its standby the one that is written."""
    await anyio.to_thread.run_sync(fleet.cluster.stop)
    await anyio.to_thread.run_sync(standby.administer, "SELECT pg_promote()")
    fleet.cluster = standby


async def inject(fleet: Fleet, random: Random) -> str:
    """Inject one fault at one node, both by chance; say which."""
    name = random.choice(list(FAULTS))
    number = random.randrange(len(fleet.nodes))
    seconds = random.choice([SHORT_S, random.uniform(SHORT_S, LONGEST_S)])
    await FAULTS[name](fleet, fleet.nodes[number], seconds)
    return f"{name}, node {number}, {seconds:.1f} s"
