"""Leases of nodes: renewed, run out, marked; and addresses that two nodes have."""

import time
from collections.abc import Callable

import anyio
import pytest

from app_server.threads.failures import OwnershipLost
from app_server.threads.nodes import LeaseEnded, LeaseRenewed, NodeSettings, ThreadsLost
from app_server.threads.postgresql import nodes as nodes_module
from app_server.threads.postgresql.database import Database
from app_server.threads.postgresql.requirements import StoreUnusable
from app_server.threads.postgresql.store import PostgresStore
from protocol.log.rollout import NameChanged
from tests.support.harness import WAIT_S
from tests.support.postgresql import Cluster, name_of
from tests.support.threads.database import asked, opened
from tests.support.threads.stores import created

pytestmark = pytest.mark.postgresql

LONG_S = 600
HOUR_S = 3600
ADDRESS = "ws://10.0.0.1:4500"


async def until(is_so: Callable[[], bool]) -> None:
    with anyio.fail_after(WAIT_S):
        while not await anyio.to_thread.run_sync(is_so):
            await anyio.sleep(0.05)


async def test_a_lease_that_ran_out_and_was_not_marked_is_renewed(database_url: str) -> None:
    async with opened(database_url, lease_s=3) as store:
        own_id = store.nodes.own_id
        thread = await store.create(created())
        past = "UPDATE nodes SET expires_at = 'epoch' WHERE id = %s RETURNING 1"
        asked(database_url, past, store.nodes.id)
        future = "SELECT 1 FROM nodes WHERE expires_at > clock_timestamp()"
        await until(lambda: bool(asked(database_url, future)))
        await thread.append(NameChanged(at_ms=1, name="named"))
        assert (store.nodes.own_id, store.nodes.is_held) == (own_id, True)
        await store.unload(thread)


async def test_a_node_that_was_marked_begins_anew_under_another_id(database_url: str) -> None:
    async with opened(database_url, lease_s=3) as store:
        own_id = store.nodes.own_id
        thread = await store.create(created())
        asked(database_url, "UPDATE nodes SET dead = true RETURNING 1")
        with anyio.fail_after(WAIT_S):
            assert await store.nodes.news() == LeaseRenewed()
            assert await store.nodes.news() == ThreadsLost()
        assert thread.is_lost
        with pytest.raises(OwnershipLost):
            await thread.require_owned()
        assert store.nodes.own_id != own_id
        with anyio.fail_after(WAIT_S):
            # Its threads are lost before it is there again.
            while [node.is_dead for node in await store.nodes.all()] != [True, False]:
                await anyio.sleep(0.01)
        again = await store.load(thread.id)
        await again.require_owned()
        # The news may be acted upon after this: it is about the other one alone.
        assert (thread.is_lost, again.is_lost) == (True, False)
        await store.unload(again)


async def test_a_node_that_does_not_renew_is_marked_by_another(database_url: str) -> None:
    silent = PostgresStore(Database(database_url), NodeSettings(lease_s=3))
    await silent.open()
    thread = await silent.create(created())
    async with opened(database_url, lease_s=3) as store:
        # It holds its lock, but nothing renews its lease.
        await until(lambda: bool(asked(database_url, "SELECT 1 FROM nodes WHERE dead")))
        taken = await store.load(thread.id)
        await store.unload(taken)
    await silent.aclose()


async def test_every_node_learns_of_a_death_whoever_marks_it(database_url: str) -> None:
    silent = PostgresStore(Database(database_url), NodeSettings(lease_s=3))
    await silent.open()
    async with opened(database_url, lease_s=3) as one, opened(database_url, lease_s=3) as other:
        deaths = [store.nodes.next_death for store in (one, other)]
        with anyio.fail_after(WAIT_S):
            for death in deaths:
                await death.wait()
        # It is forgotten once: the next one is another.
        assert not one.nodes.next_death.is_set()
        assert sorted(node.id for node in await one.nodes.all()) == sorted(
            store.nodes.own_id for store in (one, other)
        )
    await silent.aclose()


async def test_nobody_is_marked_for_a_lease_after_all_lost_their_sessions(
    database_url: str, cluster: Cluster
) -> None:
    silent = PostgresStore(Database(database_url), NodeSettings(lease_s=LONG_S))
    await silent.open()
    async with opened(database_url, lease_s=LONG_S) as store:
        looks = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = %s"
        cluster.end_sessions(name_of(database_url))
        # The one that runs has its lock again; the other's is free, and stays so.
        await until(lambda: len(asked(database_url, looks, nodes_module.NODE_LOCK)) == 1)
        await anyio.sleep(nodes_module.LOCK_FREE_S + 2 * nodes_module.LOOK_S)
        assert [node.is_dead for node in await store.nodes.all()] == [False, False]
    await silent.aclose()


async def test_a_node_without_the_database_says_so_at_the_end_of_its_lease(
    database_url: str, cluster: Cluster
) -> None:
    name = name_of(database_url)
    async with opened(database_url, lease_s=3) as store:
        assert await store.nodes.news() == LeaseRenewed()
        cluster.administer(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        cluster.end_sessions(name)
        with anyio.fail_after(WAIT_S):
            assert await store.nodes.news() == LeaseEnded()
        with pytest.raises(OwnershipLost):
            await store.nodes.require_lease()
        cluster.administer(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
        with anyio.fail_after(WAIT_S):
            assert await store.nodes.news() == LeaseRenewed()
        await store.nodes.require_lease()


async def test_a_node_that_starts_gives_others_the_time_to_come_back(database_url: str) -> None:
    over = "UPDATE nodes SET expires_at = 'epoch' WHERE id = %s RETURNING 1"
    alive = "SELECT 1 FROM nodes WHERE id = %s AND NOT dead"
    silent = PostgresStore(Database(database_url), NodeSettings(address="ws://10.0.0.2:1"))
    before = PostgresStore(Database(database_url), NodeSettings(address=ADDRESS))
    for store in (silent, before):
        await store.open()
        # As after a long time without the database.
        asked(database_url, over, store.nodes.id)
    # Else others would have the time because of its own start.
    long_up = "SELECT 1 WHERE clock_timestamp() > pg_postmaster_start_time() + interval '3 s'"
    await until(lambda: bool(asked(database_url, long_up)))
    async with opened(database_url, lease_s=3, address=ADDRESS):
        # The one that ran in its place cannot come back.
        assert not asked(database_url, alive, before.nodes.id)
        assert asked(database_url, alive, silent.nodes.id)
        await until(lambda: not asked(database_url, alive, silent.nodes.id))
    await silent.aclose()
    await before.aclose()


async def test_the_clock_of_the_database_is_looked_at_with_each_renewal(
    database_url: str, cluster: Cluster
) -> None:
    name = name_of(database_url)
    cluster.administer(f"ALTER DATABASE {name} SET search_path TO public, pg_catalog")
    for statement in (
        "CREATE TABLE clock AS SELECT interval '0' AS step",
        "CREATE FUNCTION clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS "
        "'SELECT pg_catalog.clock_timestamp() + step FROM clock'",
    ):
        asked(database_url, statement)
    async with opened(database_url, lease_s=3) as store:
        assert abs(store.nodes.now_s() - time.time()) < HOUR_S / 2
        asked(database_url, "UPDATE clock SET step = interval '1 hour'")
        with anyio.fail_after(WAIT_S):
            while store.nodes.now_s() < time.time() + HOUR_S / 2:
                await anyio.sleep(0.05)


async def test_two_nodes_with_one_address_are_refused_by_name(database_url: str) -> None:
    async with opened(database_url, lease_s=LONG_S, address=ADDRESS, is_reached=True):
        with pytest.raises(StoreUnusable, match=f"another node has the address {ADDRESS}"):
            async with opened(database_url, lease_s=3, address=ADDRESS, is_reached=True):
                pass
        # Servers that are no group may have one: each is for clients of its machine.
        async with opened(database_url, lease_s=LONG_S, address=ADDRESS) as store:
            assert len(await store.nodes.all()) == 2
