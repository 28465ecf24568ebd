"""Requests for a thread whose owner has died: they wait for the next one, and reach it."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import psycopg
import pytest

from app_server.config.store_url import StoreUrl
from app_server.handlers.services import Services
from app_server.server import ownership
from app_server.server.ownership import Ownership
from app_server.threads.nodes import Nodes
from tests.support.harness import serve
from tests.support.model import Gate, calls, says
from tests.support.processes import running
from tests.support.threads.nodes import SECRET, running_nodes
from tests.support.turn_tools.command_questions import QUESTION, command
from tests.support.turns import start_turn

pytestmark = pytest.mark.postgresql

ASKS: dict[str, Any] = {"sandbox": "danger-full-access", "approvalPolicy": "untrusted"}


async def test_a_node_that_begins_anew_at_its_address_is_not_the_owner_that_died(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url) as nodes:
        owner, other = nodes.all
        nodes.model.scripts = [says("one"), says("two")]
        async with owner.client() as at_owner, other.client() as client:
            thread_id = await at_owner.start_thread()
            await at_owner.turn(thread_id, "hi")
        port = urlsplit(owner.urls[0]).port
        os.kill(owner.process.pid, signal.SIGKILL)
        await owner.process.wait()
        options = ["--store", database_url]
        again = running(nodes.home(0), f"ws://127.0.0.1:{port}", options=options)
        async with again, other.client() as client:
            resumed = await client.call("thread/resume", {"threadId": thread_id})
            assert len(resumed["thread"]["turns"]) == 1
            assert (await client.turn(thread_id, "again"))["status"] == "completed"


async def test_a_request_made_after_the_loss_was_seen_is_not_lost(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url) as nodes:
        owner, other = nodes.all
        nodes.model.scripts = [calls(command("touch one"))]
        async with owner.client() as at_owner, other.client() as client:
            thread_id = await at_owner.start_thread(**ASKS)
            await client.call("thread/resume", {"threadId": thread_id})
            await start_turn(client, thread_id, "go")
            await client.wait_for(QUESTION)
            os.kill(owner.process.pid, signal.SIGKILL)
            await client.wait_for("serverRequest/resolved")
            # Neither of these may be sent twice, so that what was sent would be `ownerLost`.
            named = {"threadId": thread_id, "name": "after"}
            assert await client.call("thread/name/set", named) == {}
            await client.call("thread/archive", {"threadId": thread_id})


async def test_threads_of_own_clients_and_of_those_of_other_owners_are_taken_over_first(
    tmp_path: Path, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Callable[[str], bool]] = []

    class Recording(Ownership):
        def __init__(
            self, services: Services, nodes: Nodes, has_subscribers: Callable[[str], bool]
        ) -> None:
            super().__init__(services, nodes, has_subscribers)
            asked.append(has_subscribers)

    monkeypatch.setattr(ownership, "Ownership", Recording)
    async with running_nodes(tmp_path, database_url, 1) as nodes:
        (home := tmp_path / "here").mkdir()
        (home / "node-secret").write_text(SECRET)
        store, config = StoreUrl.parse(database_url), 'node_secret_file = "node-secret"\n'
        async with (
            serve(home, config=config, store=store) as served,
            served.client() as client,
            nodes.all[0].client() as elsewhere,
        ):
            own = await client.start_thread()
            followed, other = [await elsewhere.start_thread() for _ in range(2)]
            await client.call("thread/resume", {"threadId": followed})
            (has_subscribers,) = asked
            threads = (own, followed, other)
            assert [has_subscribers(one) for one in threads] == [True, True, False]


async def test_a_thread_that_cannot_be_resumed_yet_is_tried_again(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url) as nodes:
        owner, other = nodes.all
        gate = Gate()
        nodes.model.scripts = [[gate, *says("lost")]]
        async with owner.client() as at_owner, other.client() as client:
            thread_id = await at_owner.start_thread()
            await client.call("thread/resume", {"threadId": thread_id})
            turn_id = await start_turn(client, thread_id, "go")
            await gate.wait_until_reached()
            os.kill(owner.process.pid, signal.SIGKILL)
            log = await asyncio.to_thread(_exchange_beginning, database_url, thread_id, b"{}\n")
            async with other.client() as second:
                refused = await second.refusal("thread/resume", {"threadId": thread_id})
                assert refused.data["code"] == "threadDamaged"
            await asyncio.to_thread(_exchange_beginning, database_url, thread_id, log)
            ended = await client.wait_for("turn/completed")
            assert ended["params"]["turn"]["id"] == turn_id
            assert ended["params"]["turn"]["status"] == "interrupted"


def _exchange_beginning(url: str, thread_id: str, body: bytes) -> bytes:
    """Put something else in the place of a log's first row, and return what was there."""
    with psycopg.connect(url, autocommit=True) as connection:
        of_thread = "thread_id = %s AND position = 0"
        row = connection.execute(
            f"SELECT body FROM records WHERE {of_thread}", (UUID(thread_id),)
        ).fetchone()
        assert row is not None
        connection.execute(
            f"UPDATE records SET body = %s WHERE {of_thread}", (body, UUID(thread_id))
        )
        return bytes(row[0])
