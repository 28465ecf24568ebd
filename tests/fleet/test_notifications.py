"""Notifications of nodes that share an outbox."""

import os
import signal
from pathlib import Path

import anyio
import pytest

from tests.support.harness import WAIT_S, WireClient, claim
from tests.support.notifications.receiver import Receiver, rendered, verified
from tests.support.threads.nodes import running_nodes

pytestmark = pytest.mark.postgresql


async def delivered(client: WireClient) -> int:
    return len((await client.call("notification/list", {"state": "delivered"}))["data"])


@claim("notifications:at-least-once")
async def test_what_a_killed_owner_was_sending_is_sent_by_one_other_node(
    tmp_path: Path, database_url: str
) -> None:
    async with Receiver().serve() as receiver:
        # The owner dies while it waits for the answer.
        receiver.answers = [None]
        config = rendered(**receiver.entry(tmp_path, "turnCompleted"))
        async with running_nodes(tmp_path, database_url, 3, config=config) as nodes:
            owner, other, _ = nodes.all
            async with owner.client() as client:
                turn = await client.turn(await client.start_thread(), "hello")
                await receiver.wait_for(1)
                os.kill(owner.process.pid, signal.SIGKILL)
            await receiver.wait_for(2)
            async with other.client() as client:
                with anyio.fail_after(WAIT_S):
                    while not await delivered(client):
                        await anyio.lowlevel.checkpoint()
                assert len((await client.call("notification/list", {}))["data"]) == 1
    bodies = [verified(request) for request in receiver.requests]
    assert [body["data"]["turnId"] for body in bodies] == [turn["id"]] * 2
    assert bodies[0]["data"]["id"] == bodies[1]["data"]["id"]
