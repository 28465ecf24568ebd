"""Owners of threads, as the servers of one database see them."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from app_server.config.store_url import StoreUrl
from app_server.threads.failures import ThreadBusy
from app_server.threads.nodes import NodeSettings
from app_server.threads.opening.stores import Stores, open_stores
from app_server.threads.owners import Owner, ThreadOwners
from tests.support.threads.stores import created

pytestmark = pytest.mark.postgresql


@asynccontextmanager
async def opened(home: Path, url: str, address: str) -> AsyncIterator[tuple[Stores, ThreadOwners]]:
    stores = await open_stores(home, StoreUrl.parse(url), NodeSettings(address=address))
    await stores.threads.open()
    running = asyncio.create_task(stores.threads.run())
    assert stores.owners is not None
    try:
        yield stores, stores.owners
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
            owner = Owner(owners.node_id, "ws://10.0.0.1:1")
            assert await owners.owner(thread.id) == owner
            assert await seen_by_other.owner(thread.id) == owner
            with pytest.raises(ThreadBusy):
                await other.threads.require_free(thread.id)
            assert await owners.owner("00000000-0000-0000-0000-000000000000") is None
            assert await owners.owner("no id") is None
        assert await seen_by_other.owner(thread.id) is None


async def test_the_clock_is_that_of_the_database(tmp_path: Path, database_url: str) -> None:
    async with opened(tmp_path, database_url, "ws://10.0.0.1:1") as (_, owners):
        before = time.time()
        assert before - 1 < owners.now_s() < time.time() + 1
