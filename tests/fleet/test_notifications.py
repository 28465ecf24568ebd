"""Notifications of nodes that share an outbox."""

import os
import signal
from pathlib import Path

import anyio
import pytest

from tests.support.harness import WAIT_S, WireClient, claim
from tests.support.model import calls, says
from tests.support.notifications.receiver import Receiver, rendered, verified
from tests.support.processes import running
from tests.support.threads.nodes import running_nodes
from tests.support.turn_tools.turn_commands import command
from tests.support.turns import start_turn

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


@claim("notifications:crash")
@pytest.mark.parametrize(
    ("killed_at", "event"),
    [
        ("turn/completed", "turnCompleted"),
        ("item/commandExecution/requestApproval", "turnFailed"),
    ],
)
async def test_what_a_killed_owner_had_not_put_is_put_from_the_log_of_its_thread(
    tmp_path: Path, database_url: str, killed_at: str, event: str
) -> None:
    async with Receiver().serve() as receiver:
        config = rendered(**receiver.entry(tmp_path, "turnCompleted", "turnFailed"))
        async with running_nodes(tmp_path, database_url, 1, config=config) as nodes:
            (owner,) = nodes.all
            escalated = {"sandbox_permissions": "require_escalated", "justification": "May I?"}
            asking = calls({"call_id": "c", **command("true", **escalated)})
            nodes.model.scripts = [asking if "Approval" in killed_at else says("done")]
            async with owner.client() as client:
                thread_id = await client.start_thread(
                    cwd=str(tmp_path), sandbox="read-only", approvalPolicy="on-request"
                )
                turn_id = await start_turn(client, thread_id, "go")
                # Events are put together, a moment later.
                await client.until(killed_at)
                owner.process.kill()
                await owner.ended()
            options = ["--store", database_url]
            async with running(nodes.home(0), options=options):
                (request,) = await receiver.wait_for(1)
        body = verified(request)
        assert (body["type"], body["data"]["turnId"]) == (event, turn_id)
