"""A node is killed while clients of another one follow its threads."""

import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.again.cases import named
from tests.support.harness import WireClient, methods_of
from tests.support.model import Gate, calls, says
from tests.support.processes import Running
from tests.support.threads.nodes import running_nodes
from tests.support.turn_tools.command_questions import QUESTION, command
from tests.support.turns import start_turn, text_input

pytestmark = pytest.mark.postgresql

ASKS: dict[str, Any] = {"sandbox": "danger-full-access", "approvalPolicy": "untrusted"}
CLIENTS = 16


def kill(node: Running) -> None:
    os.kill(node.process.pid, signal.SIGKILL)


async def to_end(client: WireClient, turn_id: str) -> list[dict[str, Any]]:
    """Return what a client hears up to the end of a turn."""
    heard: list[dict[str, Any]] = []
    while not heard or heard[-1]["params"]["turn"]["id"] != turn_id:
        heard += await client.until("turn/completed")
    return heard


async def test_clients_that_wait_for_an_approval_see_the_end_and_can_go_on(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url) as nodes, AsyncExitStack() as stack:
        owner, other = nodes.all
        nodes.model.scripts = [calls(command("touch one")), *[says("go on")] * CLIENTS]
        at_owner = await stack.enter_async_context(owner.client())
        thread_id = await at_owner.start_thread(**ASKS)
        clients = [await stack.enter_async_context(other.client()) for _ in range(CLIENTS)]
        for client in clients:
            await client.call("thread/resume", {"threadId": thread_id})
        turn_id = await start_turn(clients[0], thread_id, "go")
        asked = [await client.wait_for(QUESTION) for client in clients]
        kill(owner)
        for client, question in zip(clients, asked, strict=True):
            heard = await client.until("turn/completed")
            (resolved,) = [m for m in heard if m["method"] == "serverRequest/resolved"]
            assert resolved["params"] == {"threadId": thread_id, "requestId": question["id"]}
            turn = heard[-1]["params"]["turn"]
            assert (turn["id"], turn["status"]) == (turn_id, "interrupted")
            # An answer that comes late is one to nobody.
            await client.send({"id": question["id"], "result": {"decision": "accept"}})
        for beginner in clients:
            next_turn = await start_turn(beginner, thread_id, "again")
            for client in clients:
                heard = await client.until("turn/completed")
                assert heard[-1]["params"]["turn"]["id"] == next_turn
                assert heard[-1]["params"]["turn"]["status"] == "completed"
                assert methods_of(heard).count("turn/started") == 1
                assert "serverRequest/resolved" not in methods_of(heard)
        assert not (nodes.home(0) / "one").exists()
        loaded = await clients[0].call("thread/loaded/list", {})
        assert loaded["data"] == [thread_id]


async def test_a_command_that_ran_ends_as_failed_for_a_client_of_another_node(
    tmp_path: Path, database_url: str
) -> None:
    options = {**ASKS, "approvalPolicy": "never"}
    async with running_nodes(tmp_path, database_url) as nodes:
        owner, other = nodes.all
        gate = Gate()
        waiting = command("echo begun; sleep 600", yield_time_ms=250)
        nodes.model.scripts = [calls(waiting), [gate, *says("lost")]]
        async with owner.client() as at_owner, other.client() as client:
            thread_id = await at_owner.start_thread(**options)
            await client.call("thread/resume", {"threadId": thread_id})
            await start_turn(client, thread_id, "go")
            await gate.wait_until_reached()
            kill(owner)
            heard = await client.until("turn/completed")
            ended = [m["params"]["item"] for m in heard if m["method"] == "item/completed"][-1]
            assert (ended["type"], ended["status"], ended["exitCode"]) == (
                "commandExecution",
                "failed",
                -1,
            )
            assert heard[-1]["params"]["turn"]["status"] == "interrupted"


async def test_a_client_that_replays_is_told_to_read_the_turns_again(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url) as nodes:
        owner, other = nodes.all
        gate = Gate()
        nodes.model.scripts = [says("seen"), [gate, *says("lost")], says("found")]
        async with owner.client() as at_owner, other.client() as client:
            thread_id = await at_owner.start_thread()
            resumed = await client.call("thread/resume", {"threadId": thread_id})
            await client.turn(thread_id, "hi")
            turn_id = await start_turn(client, thread_id, "more")
            await gate.wait_until_reached()
            known = {"streamId": resumed["streamId"], "afterSeq": 3}
            # While its stream is there, a client of another node is sent what it has missed.
            async with other.client() as again:
                replayed = await again.call("thread/resume", {"threadId": thread_id, **known})
                assert replayed["resyncRequired"] is False
                missed = await again.until("turn/started")
                while missed[-1]["params"]["turn"]["id"] != turn_id:
                    missed += await again.until("turn/started")
                seqs = [m["seq"] for m in missed if "seq" in m]
                assert seqs == list(range(4, seqs[-1] + 1))
                kill(owner)
                for heard in [await to_end(each, turn_id) for each in (client, again)]:
                    assert heard[-1]["params"]["turn"]["status"] == "interrupted"
                    ends = [m for m in heard if m["method"] == "turn/completed"]
                    assert [m["params"]["turn"]["id"] for m in ends] == [turn_id]
                # Both go on from there alike. The first event of the new stream, the status, comes
                # while the one has resumed the thread and the other not: to that it has no number.
                next_turn = await start_turn(again, thread_id, "again")
                told = [await to_end(each, next_turn) for each in (client, again)]
                first, second = ([m for m in heard if m.get("seq", 0) > 1] for heard in told)
                assert [m["seq"] for m in first] == list(range(2, first[-1]["seq"] + 1))
                assert first == second
            async with other.client() as third:
                resync = await third.call("thread/resume", {"threadId": thread_id, **known})
                assert resync["resyncRequired"] is True
                assert resync["streamId"] != resumed["streamId"]
                statuses = [turn["status"] for turn in resync["thread"]["turns"]]
                assert statuses == ["completed", "interrupted", "completed"]


async def test_a_request_with_a_key_is_sent_again_and_others_are_not(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url) as nodes:
        owner, other = nodes.all
        nodes.model.scripts = [says("one"), says("two")]
        async with owner.client() as at_owner, other.client() as client:
            thread_id = await at_owner.start_thread()
            await client.call("thread/resume", {"threadId": thread_id})
            # A process that stands still has not answered, and will not.
            os.kill(owner.process.pid, signal.SIGSTOP)
            plain = await client.request("thread/name/set", {"threadId": thread_id, "name": "n"})
            keyed = await client.request("thread/read", {"threadId": thread_id})
            start = {
                "threadId": thread_id,
                "input": text_input("hi"),
                "clientUserMessageId": "mine",
            }
            async with other.client() as second, other.client() as third:
                await second.call("model/list", {})
                await third.call("model/list", {})
                mode = {"threadId": thread_id, "mode": "disabled"}
                operation = await third.request("thread/memoryMode/set", named(mode))
                once = await second.request("thread/resume", {"threadId": thread_id})
                kill(owner)
                lost = (await client.answer(plain))["error"]
                assert lost["data"] == {
                    "code": "ownerLost",
                    "threadId": thread_id,
                    "retriable": True,
                }
                assert (await third.answer(operation))["result"] == {}
                assert (await client.answer(keyed))["result"]["thread"]["id"] == thread_id
                assert (await second.answer(once))["result"]["thread"]["id"] == thread_id
            turn = (await client.call("turn/start", start))["turn"]["id"]
            again = (await client.call("turn/start", start))["turn"]["id"]
            assert turn == again
            ended = await client.wait_for("turn/completed")
            assert ended["params"]["turn"]["id"] == turn
