"""A link between nodes breaks, or its owner dies, while a turn runs: each event is told once."""

import os
import signal
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import WireClient, methods_of
from tests.support.model import Gate, calls, says
from tests.support.threads.nodes import running_nodes
from tests.support.turn_tools.command_questions import QUESTION, command
from tests.support.turns import start_turn, text_input

pytestmark = pytest.mark.postgresql

ONCE = ("turn/started", "turn/completed", "item/completed")


def told(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return what was said of turns and complete items: methods and ids."""
    return [
        (m["method"], (m["params"].get("item") or m["params"]["turn"])["id"])
        for m in messages
        if m["method"] in ONCE
    ]


async def to_end(client: WireClient, turn_id: str) -> list[dict[str, Any]]:
    """Return what a client hears up to the end of a turn."""
    heard: list[dict[str, Any]] = []
    while True:
        heard += await client.until("turn/completed")
        if heard[-1]["params"]["turn"]["id"] == turn_id:
            return heard


@pytest.mark.parametrize("resume", [{}, {"excludeTurns": True}])
async def test_who_joined_a_turn_that_ran_hears_of_its_end_when_its_owner_dies(
    tmp_path: Path, database_url: str, resume: dict[str, Any]
) -> None:
    async with running_nodes(tmp_path, database_url) as nodes:
        owner, other = nodes.all
        gate = Gate()
        nodes.model.scripts = [says("before"), [gate, *says("lost")]]
        async with owner.client() as at_owner, other.client() as client:
            thread_id = await at_owner.start_thread()
            await at_owner.turn(thread_id, "hi")
            turn_id = await start_turn(at_owner, thread_id, "go")
            await gate.wait_until_reached()
            joined = await client.call("thread/resume", {"threadId": thread_id, **resume})
            assert joined["thread"]["status"]["type"] == "active"
            os.kill(owner.process.pid, signal.SIGKILL)
            heard = await to_end(client, turn_id)
            assert told(heard) == [("turn/completed", turn_id)]
            assert heard[-1]["params"]["turn"]["status"] == "interrupted"


async def test_an_owner_that_is_silent_is_as_good_as_dead(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url, config="lease_seconds = 3\n") as nodes:
        owner, other = nodes.all
        nodes.model.scripts = [calls(command("touch one")), says("go on")]
        async with owner.client() as at_owner, other.client() as client:
            thread_id = await at_owner.start_thread(
                sandbox="danger-full-access", approvalPolicy="untrusted"
            )
            await client.call("thread/resume", {"threadId": thread_id})
            turn_id = await start_turn(client, thread_id, "go")
            asked = await client.wait_for(QUESTION)
            # Its connections stay open, and it answers nothing.
            os.kill(owner.process.pid, signal.SIGSTOP)
            heard = await client.until("turn/completed")
            (resolved,) = [m for m in heard if m["method"] == "serverRequest/resolved"]
            assert resolved["params"]["requestId"] == asked["id"]
            turn = heard[-1]["params"]["turn"]
            assert (turn["id"], turn["status"]) == (turn_id, "interrupted")
            assert (await client.turn(thread_id, "again"))["status"] == "completed"
            os.kill(owner.process.pid, signal.SIGCONT)
            closed = await at_owner.wait_for("thread/closed")
            assert closed["params"] == {"threadId": thread_id}
            read = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
            statuses = [one["status"] for one in read["thread"]["turns"]]
            assert statuses == ["interrupted", "completed"]
            assert not (nodes.home(0) / "one").exists()


async def test_a_link_that_breaks_in_a_turn_leaves_no_gap_and_doubles_nothing(
    tmp_path: Path, database_url: str
) -> None:
    async with (
        running_nodes(tmp_path, database_url, behind_proxy=True) as nodes,
        AsyncExitStack() as stack,
    ):
        owner, other = nodes.all
        assert nodes.proxy is not None
        gates = [Gate(), Gate(), Gate()]
        options = {"sandbox": "danger-full-access", "approvalPolicy": "never"}
        nodes.model.scripts = [
            [gates[0], *calls(command("echo one") | {"call_id": "one"})],
            [gates[1], *calls(command("echo two") | {"call_id": "two"})],
            [gates[2], *says("done")],
        ]
        at_owner = await stack.enter_async_context(owner.client())
        thread_id = await at_owner.start_thread(**options)
        clients = [await stack.enter_async_context(other.client()) for _ in range(2)]
        await clients[0].call("thread/resume", {"threadId": thread_id})
        turn_id = await start_turn(clients[0], thread_id, "go")
        # The other one joins in the middle.
        await gates[0].wait_until_reached()
        joined = await clients[1].call("thread/resume", {"threadId": thread_id})
        shown = {item["id"] for turn in joined["thread"]["turns"] for item in turn["items"]}
        for gate in gates:
            await gate.wait_until_reached()
            nodes.proxy.break_all()
            gate.opened.set()
        all_told = told(await to_end(at_owner, turn_id))
        first, second = [told(await to_end(client, turn_id)) for client in clients]
        assert Counter(first) == Counter(all_told)
        expected = [one for one in all_told if one[0] != "turn/started" and one[1] not in shown]
        assert Counter(second) == Counter(expected)
        assert second[-1] == ("turn/completed", turn_id)
        # And they follow it still.
        nodes.model.scripts = [says("again")]
        next_turn = await start_turn(clients[1], thread_id, "again")
        for client in clients:
            assert methods_of(await to_end(client, next_turn)).count("turn/started") == 1


async def test_a_turn_that_the_next_owner_begins_at_once_is_told_once(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url) as nodes, AsyncExitStack() as stack:
        owner, other = nodes.all
        gate = Gate()
        options = {"sandbox": "danger-full-access", "approvalPolicy": "never"}
        commands = [
            calls(command(f"echo {number}") | {"call_id": f"call {number}"}) for number in range(10)
        ]
        nodes.model.scripts = [[gate, *says("lost")], *commands, says("queued")]
        at_owner = await stack.enter_async_context(owner.client())
        thread_id = await at_owner.start_thread(**options)
        clients = [await stack.enter_async_context(other.client()) for _ in range(16)]
        for client in clients:
            await client.call("thread/resume", {"threadId": thread_id})
        turn_id = await start_turn(clients[0], thread_id, "go")
        next_input = {"input": text_input("next"), "clientUserMessageId": "next"}
        await clients[0].call("thread/queue/add", {"threadId": thread_id, **next_input})
        await gate.wait_until_reached()
        os.kill(owner.process.pid, signal.SIGKILL)
        all_told: list[list[tuple[str, str]]] = []
        for client in clients:
            heard = told(await to_end(client, turn_id))
            while heard[-1] == ("turn/completed", turn_id) or heard[-1][0] != "turn/completed":
                heard += told(await client.until("turn/completed"))
            all_told.append(heard)
        for heard in all_told:
            assert Counter(heard) == Counter(set(heard))
            assert set(heard) == set(all_told[0])


async def test_a_link_that_breaks_at_each_item_leaves_no_gap_and_doubles_nothing(
    tmp_path: Path, database_url: str
) -> None:
    async with (
        running_nodes(tmp_path, database_url, behind_proxy=True) as nodes,
        AsyncExitStack() as stack,
    ):
        owner, other = nodes.all
        assert nodes.proxy is not None
        options = {"sandbox": "danger-full-access", "approvalPolicy": "never"}
        commands = [
            calls(command(f"echo {number}") | {"call_id": f"call {number}"}) for number in range(10)
        ]
        nodes.model.scripts = [*commands, says("done")]
        at_owner = await stack.enter_async_context(owner.client())
        thread_id = await at_owner.start_thread(**options)
        clients = [await stack.enter_async_context(other.client()) for _ in range(8)]
        for client in clients:
            await client.call("thread/resume", {"threadId": thread_id})
        turn_id = await start_turn(clients[0], thread_id, "go")
        at_owner_told: list[tuple[str, str]] = []
        while ("turn/completed", turn_id) not in at_owner_told:
            at_owner_told += told([await at_owner.receive()])
            nodes.proxy.break_all()
        for client in clients:
            heard = told(await to_end(client, turn_id))
            assert Counter(heard) == Counter(at_owner_told)
