"""Signals for threads of another node: their owner takes them."""

import asyncio
from pathlib import Path

import pytest

from tests.support.model import Gate, says
from tests.support.receiver.signals import deliver
from tests.support.receiver.stages import stage
from tests.support.threads.nodes import owners, running_nodes
from tests.support.turns import start_turn

pytestmark = pytest.mark.postgresql


async def test_a_signal_wakes_its_thread_at_the_owner(tmp_path: Path, database_url: str) -> None:
    async with running_nodes(tmp_path, database_url) as nodes:
        owner, other = nodes.all
        nodes.model.scripts = [says("hello"), says("read")]
        async with owner.client() as at_owner, other.client() as client:
            # What delivers is loaded with the first request: a busy machine takes long for it.
            for each in (at_owner, client):
                await each.call("signal/list", {})
            thread_id = await at_owner.start_thread()
            await at_owner.turn(thread_id, "hi")
            # Found by the look at the ledger, it would be accepted, and known to no thread.
            receipt = await deliver(client, thread_id, mode="wake")
            assert (receipt["stage"], receipt["recipientState"], receipt["woken"]) == (
                "inHistory",
                "idle",
                True,
            )
            await stage(client, "s1", "answered")
            await at_owner.until("turn/completed")


async def test_a_signal_that_waits_at_the_owner_is_recalled_there(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url) as nodes:
        owner, other = nodes.all
        gate = Gate()
        nodes.model.scripts = [[gate, *says("late")]]
        async with owner.client() as at_owner, other.client() as client:
            # What delivers is loaded with the first request: a busy machine takes long for it.
            for each in (at_owner, client):
                await each.call("signal/list", {})
            thread_id = await at_owner.start_thread()
            await start_turn(at_owner, thread_id, "go")
            await gate.wait_until_reached()
            receipt = await deliver(client, thread_id, mode="wake")
            assert (receipt["stage"], receipt["recipientState"]) == ("accepted", "active")
            recall = {"source": "router", "id": "s1"}
            recalled = (await client.call("signal/recall", recall))["receipt"]
            assert recalled["stage"] == "recalled"
            assert (await at_owner.call("signal/read", recall))["receipt"] == recalled


async def test_a_thread_without_an_owner_is_taken_for_its_signal(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url) as nodes:
        owner, other = nodes.all
        nodes.model.scripts = [says("hello"), says("read")]
        async with owner.client() as at_owner, other.client() as client:
            # What delivers is loaded with the first request: a busy machine takes long for it.
            for each in (at_owner, client):
                await each.call("signal/list", {})
            thread_id = await at_owner.start_thread()
            await at_owner.turn(thread_id, "hi")
            gone = {"threadId": thread_id}
            await at_owner.call("thread/unsubscribe", {**gone, "unload": True})
            await deliver(client, thread_id, mode="wake")
            await stage(client, "s1", "answered")
            owned = await asyncio.to_thread(owners, database_url)
            assert owned == {thread_id: other.urls[0]}
