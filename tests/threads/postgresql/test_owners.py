"""Owners of threads, as the servers of one database see them."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app_server.config.store_url import StoreUrl
from app_server.threads.failures import ThreadBusy
from app_server.threads.nodes import Nodes, NodeSettings, Owner
from app_server.threads.opening.stores import Stores, open_stores
from tests.support.threads.stores import created

pytestmark = pytest.mark.postgresql


@asynccontextmanager
async def opened(
    home: Path, url: str, address: str, *, is_reached: bool = True
) -> AsyncIterator[tuple[Stores, Nodes]]:
    node = NodeSettings(address=address, is_reached=is_reached)
    stores = await open_stores(home, StoreUrl.parse(url), node)
    await stores.threads.open()
    running = asyncio.create_task(stores.threads.run())
    assert stores.nodes is not None
    try:
        yield stores, stores.nodes
    finally:
        running.cancel()
        await asyncio.wait({running})
        await stores.threads.aclose()


async def test_all_servers_of_a_database_say_who_writes_a_thread(
    tmp_path: Path, database_url: str
) -> None:
    async with opened(tmp_path, database_url, "ws://10.0.0.2:1") as (other, seen_by_other):
        async with opened(tmp_path, database_url, "ws://10.0.0.1:1") as (stores, owners):
            thread = await stores.threads.create(created())
            owner = Owner(owners.own_id, "ws://10.0.0.1:1")
            assert await owners.owner(thread.id) == owner
            assert await seen_by_other.owner(thread.id) == owner
            with pytest.raises(ThreadBusy):
                await other.threads.require_free(thread.id)
            assert await owners.owner("00000000-0000-0000-0000-000000000000") is None
            assert await owners.owner("no id") is None
        assert await seen_by_other.owner(thread.id) is None


async def test_a_server_that_is_in_no_group_is_an_owner_that_nobody_reaches(
    tmp_path: Path, database_url: str
) -> None:
    address = "ws://10.0.0.1:1"
    async with opened(tmp_path, database_url, address, is_reached=False) as (stores, owners):
        thread = await stores.threads.create(created())
        assert await owners.owner(thread.id) == Owner(owners.own_id, None)


async def test_the_clock_is_that_of_the_database(tmp_path: Path, database_url: str) -> None:
    async with opened(tmp_path, database_url, "ws://10.0.0.1:1") as (_, owners):
        before = time.time()
        assert before - 1 < owners.now_s() < time.time() + 1
