"""Wakes on nodes of a database: one fires each, and clients at any node are told."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from app_server.threads.postgresql.database import Database
from app_server.threads.postgresql.signals.ledger import PostgresLedger
from tests.support.harness import WireClient, claim
from tests.support.model import says
from tests.support.receiver.wakes import (
    HOUR_MS,
    fired_elsewhere,
    reached,
    set_timer,
    signals_of,
    soon_ms,
    states_to_delivered,
)
from tests.support.threads.nodes import owners, running_nodes

pytestmark = pytest.mark.postgresql


async def begun(at_owner: WireClient, client: WireClient) -> str:
    """Start a thread at one node, and follow it at another one."""
    # What wakes is loaded with the first request: a busy machine takes long for it.
    for each in (at_owner, client):
        await each.call("thread/wake/list", {})
    thread_id = await at_owner.start_thread()
    await at_owner.turn(thread_id, "hi")
    await client.call("thread/resume", {"threadId": thread_id})
    return thread_id


@claim("wakes:servers")
async def test_a_timer_that_is_set_at_another_node_fires_once_at_the_owner(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url) as nodes:
        owner, other = nodes.all
        async with owner.client() as at_owner, other.client() as client:
            thread_id = await begun(at_owner, client)
            wake = await set_timer(client, thread_id, soon_ms())
            for each in (at_owner, client):
                assert await states_to_delivered(each, wake) == ["armed", "fired", "delivered"]
            await at_owner.until("turn/completed")
            assert await signals_of(client, thread_id) == [wake["id"]]
            assert len(nodes.model.requests) == 2
            assert await asyncio.to_thread(owners, database_url) == {thread_id: owner.urls[0]}


@claim("wakes:servers")
async def test_a_timer_whose_owner_was_killed_fires_once_at_another_node(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url) as nodes:
        owner, other = nodes.all
        nodes.model.scripts = [says("hello"), says("woken")]
        async with owner.client() as at_owner, other.client() as client:
            thread_id = await begun(at_owner, client)
            wake = await set_timer(client, thread_id, soon_ms())
            os.kill(owner.process.pid, signal.SIGKILL)
            await reached(client, wake, "delivered")
            await client.call("thread/resume", {"threadId": thread_id})
            await client.turn(thread_id, "next")
            texts = "\n".join(text for _, text in nodes.model.inputs())
            assert texts.count(f'id: "{wake["id"]}"') == 1
            assert await signals_of(client, thread_id) == [wake["id"]]
            assert await asyncio.to_thread(owners, database_url) == {thread_id: other.urls[0]}


@claim("wakes:servers")
async def test_a_timer_whose_owner_is_frozen_fires_once_at_another_node(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url, config="lease_seconds = 3\n") as nodes:
        owner, other = nodes.all
        nodes.model.scripts = [says("hello"), says("woken")]
        async with owner.client() as at_owner, other.client() as client:
            thread_id = await begun(at_owner, client)
            wake = await set_timer(client, thread_id, soon_ms())
            os.kill(owner.process.pid, signal.SIGSTOP)
            try:
                await reached(client, wake, "delivered")
            finally:
                os.kill(owner.process.pid, signal.SIGCONT)
        async with owner.client() as at_owner, other.client() as client:
            await reached(at_owner, wake, "delivered")
            await client.call("thread/resume", {"threadId": thread_id})
            await client.turn(thread_id, "next")
            texts = "\n".join(text for _, text in nodes.model.inputs())
            assert texts.count(f'id: "{wake["id"]}"') == 1
            for each in (at_owner, client):
                assert await signals_of(each, thread_id) == [wake["id"]]
            assert await asyncio.to_thread(owners, database_url) == {thread_id: other.urls[0]}


@claim("wakes:servers")
async def test_clients_at_any_node_hear_what_another_server_does_with_a_wake(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url) as nodes:
        owner, other = nodes.all
        async with owner.client() as at_owner, other.client() as client:
            thread_id = await begun(at_owner, client)
            wake = await set_timer(client, thread_id, soon_ms(HOUR_MS))
            await asyncio.to_thread(_fire, database_url, wake)
            for each in (at_owner, client):
                assert await states_to_delivered(each, wake) == ["armed", "fired", "delivered"]
            assert await signals_of(client, thread_id) == [wake["id"]]


def _fire(url: str, wake: Any) -> None:
    """Fire a wake as a third server, which dies before it delivers."""
    database = Database(url)
    database.open()
    try:
        fired_elsewhere(PostgresLedger(database), wake)
    finally:
        database.close()
