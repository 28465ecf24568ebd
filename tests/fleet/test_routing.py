"""Requests for threads of another node: whoever asks this one is answered as by that one."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest

from app_server.handlers.threads.lists import MAX_LOADED
from protocol.contract.methods import METHODS
from protocol.contract.specs import THREAD_READ
from tests.support.harness import WireClient, methods_of, stdio_server, write_config
from tests.support.mcp_peers.calls import asking
from tests.support.model import Gate, calls, says
from tests.support.processes import running
from tests.support.threads.nodes import Nodes, owners, running_nodes
from tests.support.turn_tools.command_questions import QUESTION, command
from tests.support.turns import start_turn, text_input

pytestmark = pytest.mark.postgresql

ASKS: dict[str, Any] = {"sandbox": "danger-full-access", "approvalPolicy": "untrusted"}


@dataclass
class Hop:
    """A thread of one node, and a client of another one that follows it."""

    nodes: Nodes
    at_owner: WireClient
    client: WireClient
    thread_id: str


@asynccontextmanager
async def hop(folder: Path, url: str, config: str = "", **params: Any) -> AsyncIterator[Hop]:
    async with running_nodes(folder, url, config=config) as nodes:
        owner, other = nodes.all
        async with owner.client() as at_owner, other.client() as client:
            thread_id = await at_owner.start_thread(**params)
            # Clients of all nodes are told of it, some time after it has begun.
            await client.wait_for("thread/started", lambda p: p["thread"]["id"] == thread_id)
            await client.call("thread/resume", {"threadId": thread_id})
            yield Hop(nodes, at_owner, client, thread_id)


async def test_a_turn_is_seen_alike_on_both_nodes(tmp_path: Path, database_url: str) -> None:
    async with hop(tmp_path, database_url) as at:
        at.nodes.model.scripts = [says("Hel", "lo")]
        turn_id = await start_turn(at.client, at.thread_id, "hi")
        seen = await at.client.until("turn/completed")
        assert seen == await at.at_owner.until("turn/completed")
        assert [m["seq"] for m in seen] == list(range(1, len(seen) + 1))
        assert methods_of(seen)[0] == "thread/status/changed"
        assert seen[-1]["params"]["turn"]["id"] == turn_id
        deltas = [m["params"]["delta"] for m in seen if m["method"] == "item/agentMessage/delta"]
        assert deltas == ["Hel", "lo"]
        # Of what runs in a thread that it follows a client reads what its owner knows.
        read = await at.client.call("thread/read", {"threadId": at.thread_id})
        assert read["thread"]["status"] == {"type": "idle"}


async def test_connections_of_other_nodes_are_counted(tmp_path: Path, database_url: str) -> None:
    async with hop(tmp_path, database_url) as at:
        found = []
        for client in (at.at_owner, at.client):
            gauges = (await client.call("server/diagnostics", {}))["gauges"]
            counts = {gauge["name"]: gauge["value"] for gauge in gauges}
            found.append((counts["app.connections"], counts["app.connections.of_nodes"]))
        assert found == [(2, 1), (1, 0)]


async def test_a_client_that_left_a_thread_hears_no_more_of_it(
    tmp_path: Path, database_url: str
) -> None:
    async with hop(tmp_path, database_url) as at:
        at.nodes.model.scripts = [says("one"), says("two")]
        left = await at.client.call("thread/unsubscribe", {"threadId": at.thread_id})
        assert left["status"] == "unsubscribed"
        await start_turn(at.client, at.thread_id, "hi")
        await at.at_owner.until("turn/completed")
        await at.client.call("model/list", {})
        assert at.client.take_kept() == []
        await at.client.call("thread/resume", {"threadId": at.thread_id})
        await at.client.turn(at.thread_id, "again")


async def test_an_approval_is_asked_for_and_given_through_the_hop(
    tmp_path: Path, database_url: str
) -> None:
    async with hop(tmp_path, database_url, **ASKS) as at:
        at.nodes.model.scripts = [
            calls(command("touch one")),
            calls(command("touch two")),
            says("done"),
        ]
        own = await at.client.start_thread(**ASKS)
        await start_turn(at.client, at.thread_id, "go")
        first = await at.client.wait_for(QUESTION)
        assert first["params"]["threadId"] == at.thread_id
        await at.client.send({"id": first["id"], "result": {"decision": "accept"}})
        resolved = await at.client.wait_for("serverRequest/resolved")
        assert resolved["params"] == {"threadId": at.thread_id, "requestId": first["id"]}
        # The other client answers this one; its ids are those of its node.
        second = await at.client.wait_for(QUESTION)
        assert second["id"] != first["id"]
        asked = await at.at_owner.wait_for(QUESTION, lambda p: "two" in p["command"])
        await at.at_owner.send({"id": asked["id"], "result": {"decision": "decline"}})
        resolved = await at.client.wait_for("serverRequest/resolved")
        assert resolved["params"] == {"threadId": at.thread_id, "requestId": second["id"]}
        await at.client.send({"id": second["id"], "result": {"decision": "accept"}})
        await at.client.until("turn/completed")
        assert (at.nodes.home(0) / "one").exists()
        assert not (at.nodes.home(0) / "two").exists()
        # Questions of both nodes are open at once, under ids of their own.
        at.nodes.model.scripts = [calls(command("touch a")), calls(command("touch b"))] * 2
        await start_turn(at.client, at.thread_id, "go")
        await start_turn(at.client, own, "go")
        asked = [await at.client.wait_for(QUESTION) for _ in range(2)]
        assert {message["params"]["threadId"] for message in asked} == {at.thread_id, own}
        assert asked[0]["id"] != asked[1]["id"]


async def test_a_question_that_was_open_is_asked_of_who_joins_from_another_node(
    tmp_path: Path, database_url: str
) -> None:
    async with hop(tmp_path, database_url, **ASKS) as at:
        at.nodes.model.scripts = [calls(command("touch one")), says("done")]
        await start_turn(at.at_owner, at.thread_id, "go")
        await at.at_owner.wait_for(QUESTION)
        async with at.nodes.all[1].client() as late:
            joined = await late.call("thread/resume", {"threadId": at.thread_id})
            assert joined["thread"]["status"]["type"] == "active"
            asked = await late.wait_for(QUESTION)
            await late.send({"id": asked["id"], "result": {"decision": "accept"}})
            await late.until("turn/completed")
        assert (at.nodes.home(0) / "one").exists()


async def test_an_elicitation_is_answered_through_the_hop(
    tmp_path: Path, database_url: str
) -> None:
    form = {
        "mode": "form",
        "message": "Who?",
        "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
    }
    async with hop(tmp_path, database_url, stdio_server("raw")) as at:
        called = await at.client.request(
            "mcpServer/tool/call",
            {
                "threadId": at.thread_id,
                "server": "raw",
                "tool": "request",
                "arguments": _asked(form),
            },
        )
        asked = await at.client.wait_for("mcpServer/elicitation/request")
        content = {"name": "me"}
        await at.client.send(
            {"id": asked["id"], "result": {"action": "accept", "content": content}}
        )
        answered = await at.client.answer(called)
        text = answered["result"]["content"][0]["text"]
        assert json.loads(text)["result"] == {"action": "accept", "content": content}


def _asked(form: dict[str, Any]) -> Any:
    arguments: Any = asking(form)["arguments"]
    return arguments


async def test_a_tool_of_the_client_is_called_through_the_hop(
    tmp_path: Path, database_url: str
) -> None:
    tool = {
        "type": "function",
        "name": "look",
        "description": "Look.",
        "inputSchema": {"type": "object", "properties": {}},
    }
    async with hop(tmp_path, database_url, dynamicTools=[tool]) as at:
        at.nodes.model.scripts = [calls({"name": "look"}), says("seen")]
        await at.client.call("turn/start", {"threadId": at.thread_id, "input": text_input("go")})
        asked = await at.client.wait_for("item/tool/call")
        content = [{"type": "inputText", "text": "a cat"}]
        await at.client.send(
            {"id": asked["id"], "result": {"contentItems": content, "success": True}}
        )
        await at.client.until("turn/completed")
        assert "a cat" in str(at.nodes.model.items())


async def test_a_turn_is_steered_and_interrupted_through_the_hop(
    tmp_path: Path, database_url: str
) -> None:
    async with hop(tmp_path, database_url) as at:
        gates = [Gate(), Gate()]
        at.nodes.model.scripts = [[gates[0], *says("one")], [gates[1], *says("two")]]
        turn_id = await start_turn(at.client, at.thread_id, "hi")
        await gates[0].wait_until_reached()
        steer = {"threadId": at.thread_id, "expectedTurnId": turn_id, "input": text_input("no")}
        assert await at.client.call("turn/steer", steer) == {"turnId": turn_id}
        gates[0].opened.set()
        await gates[1].wait_until_reached()
        await at.client.call("turn/interrupt", {"threadId": at.thread_id, "turnId": turn_id})
        ended = await at.client.wait_for("turn/completed")
        assert ended["params"]["turn"]["status"] == "interrupted"


async def test_one_connection_follows_threads_of_two_owners(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url, 3) as nodes:
        first, second, asked = nodes.all
        nodes.model.scripts = [says(str(number)) for number in range(3)]
        async with (
            first.client() as one,
            second.client() as two,
            asked.client(experimental=False) as client,
        ):
            threads = [await one.start_thread(), await two.start_thread()]
            for thread_id in threads:
                await client.call("thread/resume", {"threadId": thread_id})
            threads.append(await client.start_thread())
            for thread_id in threads:
                turn = await client.turn(thread_id, "hi")
                assert turn["status"] == "completed"
            listed = await client.call("thread/list", {})
            assert {row["id"] for row in listed["data"]} == set(threads)
            # A batch is answered as a whole, whoever answers its parts.
            names = [
                {"id": f"n{n}", "method": "thread/name/set", "params": {"threadId": t, "name": t}}
                for n, t in enumerate(threads)
            ]
            await client.send(names)
            batch = await client.receive()
            while not isinstance(batch, list):
                batch = await client.receive()
            assert sorted(answer["id"] for answer in batch) == ["n0", "n1", "n2"]
            for thread_id in threads:
                read = await client.call("thread/read", {"threadId": thread_id})
                assert read["thread"]["name"] == thread_id


async def test_every_node_lists_the_loaded_threads_of_all(
    tmp_path: Path, database_url: str
) -> None:
    alone = tmp_path / "alone"
    async with running_nodes(tmp_path, database_url, 3) as nodes, AsyncExitStack() as stack:
        write_config(alone, nodes.model.url)
        # It passes no requests on, and gets none.
        hidden = await stack.enter_async_context(running(alone, options=["--store", database_url]))
        clients = [await stack.enter_async_context(node.client()) for node in (*nodes.all, hidden)]
        first, second, third, apart = [await client.start_thread() for client in clients]
        own = await clients[0].start_thread()
        unloaded = await clients[1].start_thread()
        await clients[1].call("thread/unsubscribe", {"threadId": unloaded, "unload": True})
        await clients[1].start_thread(ephemeral=True)
        listed = await clients[0].call("thread/loaded/list", {})
        assert listed == {"data": [second, third, first, own], "nextCursor": None}
        page = await clients[0].call("thread/loaded/list", {"limit": 2})
        assert page == {"data": [second, third], "nextCursor": third}
        rest = await clients[0].call("thread/loaded/list", {"cursor": third})
        assert rest == {"data": [first, own], "nextCursor": None}
        for cursor, found in ((second, third), (third, first), (first, own)):
            page = await clients[0].call("thread/loaded/list", {"cursor": cursor, "limit": 1})
            more = None if found == own else found
            assert page == {"data": [found], "nextCursor": more}
        for cursor in ("none", "01a2203f-860d-7120-b637-669d9cbe38b5"):
            refused = await clients[0].refusal("thread/loaded/list", {"cursor": cursor})
            assert refused.data == {"code": "invalidCursor", "cursor": cursor}
        assert (await clients[2].call("thread/loaded/list", {}))["data"] == [
            first, second, own, third
        ]  # fmt: skip
        assert (await clients[3].call("thread/loaded/list", {}))["data"] == [apart]


async def test_a_page_of_the_loaded_threads_of_all_has_a_bound(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url) as nodes:
        first, second = nodes.all
        async with first.client() as here, second.client() as there:
            own, other = await here.start_thread(), await there.start_thread()
            with psycopg.connect(database_url, autocommit=True) as connection:
                # As if the other node had as many more.
                connection.execute(
                    "CREATE TEMP TABLE more AS SELECT threads.* FROM threads, "
                    "generate_series(1, %s) WHERE id = %s",
                    (MAX_LOADED, other),
                )
                connection.execute("UPDATE more SET id = gen_random_uuid()")
                connection.execute("INSERT INTO threads SELECT * FROM more")
            page = await here.call("thread/loaded/list", {})
            assert (len(set(page["data"])), own in page["data"]) == (MAX_LOADED, False)
            assert page["nextCursor"] == page["data"][-1]
            rest = await here.call("thread/loaded/list", {"cursor": page["nextCursor"]})
            assert rest["nextCursor"] is None
            assert (len(rest["data"]), rest["data"][1]) == (2, own)
            assert len({*page["data"], *rest["data"]}) == MAX_LOADED + 2


async def test_a_folder_that_this_machine_lacks_is_named_by_the_command(
    tmp_path: Path, database_url: str
) -> None:
    folder = tmp_path / "of another machine"
    folder.mkdir()
    async with running_nodes(tmp_path, database_url) as nodes:
        owner, other = nodes.all
        nodes.model.scripts = [says("one"), calls(command("echo hi")), says("two")]
        async with owner.client() as at_owner, other.client() as client:
            options = {**ASKS, "approvalPolicy": "never", "cwd": str(folder)}
            thread_id = await at_owner.start_thread(**options)
            await at_owner.turn(thread_id, "hi")
            await at_owner.call("thread/unsubscribe", {"threadId": thread_id, "unload": True})
            folder.rmdir()
            resumed = await client.call("thread/resume", {"threadId": thread_id})
            assert (resumed["cwd"], len(resumed["thread"]["turns"])) == (str(folder), 1)
            await start_turn(client, thread_id, "go")
            heard = await client.until("turn/completed")
            (ran,) = [
                item
                for m in heard
                if m["method"] == "item/completed"
                and (item := m["params"]["item"])["type"] == "commandExecution"
            ]
            refused = f"environmentUnavailable: {folder}: No such file or directory"
            assert (ran["status"], ran["aggregatedOutput"]) == ("failed", refused)
            assert nodes.model.items()[-1]["output"] == f"exec_command failed: {refused}"
            assert heard[-1]["params"]["turn"]["status"] == "completed"


async def test_a_thread_without_an_owner_is_taken_by_the_node_that_was_asked(
    tmp_path: Path, database_url: str
) -> None:
    async with running_nodes(tmp_path, database_url) as nodes:
        owner, other = nodes.all
        nodes.model.scripts = [says("one"), says("two")]
        async with owner.client() as at_owner, other.client() as client:
            thread_id = await at_owner.start_thread()
            await at_owner.turn(thread_id, "hi")
            await client.call("thread/resume", {"threadId": thread_id})
            for each in (at_owner, client):
                await each.call("thread/unsubscribe", {"threadId": thread_id})
            unloading = {"threadId": thread_id, "unload": True}
            assert (await client.call("thread/unsubscribe", unloading))["unloaded"] is True
            # What the link knew of the owner is out of date, and found to be.
            resumed = await client.call("thread/resume", {"threadId": thread_id})
            assert len(resumed["thread"]["turns"]) == 1
            await client.turn(thread_id, "again")
            owned = await asyncio.to_thread(owners, database_url)
            assert owned == {thread_id: other.urls[0]}


async def test_what_a_node_refuses_comes_back_as_it_is(tmp_path: Path, database_url: str) -> None:
    async with hop(tmp_path, database_url) as at:
        resume = {"threadId": at.thread_id, "path": "/a/log.jsonl"}
        with_path = await at.client.refusal("thread/resume", resume)
        assert with_path.data["code"] == "pathNotUsed"
        with_path = await at.client.refusal(
            "thread/resume", {**resume, "threadId": "01a2203f-860d-7120-b637-669d9cbe38b5"}
        )
        assert with_path.data["code"] in ("threadNotFound", "pathNotUsed")
        no_turn = {"threadId": at.thread_id, "turnId": "none"}
        here = await at.client.refusal("turn/interrupt", no_turn)
        there = await at.at_owner.refusal("turn/interrupt", no_turn)
        assert (here.code, here.message, here.data) == (there.code, there.message, there.data)
        bad = await at.client.refusal("turn/start", {"threadId": at.thread_id, "input": 7})
        assert bad.data["code"] == "invalidParams"


OF_SETTINGS: dict[str, dict[str, Any]] = {
    "app/installed": {},
    "app/list": {},
    "app/read": {"appIds": ["none"]},
    "experimentalFeature/list": {},
    "hooks/list": {},
    "mcpServer/oauth/login": {"name": "none"},
    "mcpServerStatus/list": {},
}
"""Requests whose answer depends on the settings of a loaded thread, with what else they need."""


async def test_what_depends_on_the_settings_of_a_thread_is_answered_by_its_owner(
    tmp_path: Path, database_url: str
) -> None:
    async with hop(tmp_path, database_url) as at:
        for method, params in OF_SETTINGS.items():
            asked = {**params, "threadId": at.thread_id}
            here, there = [
                await client.answer(await client.request(method, asked))
                for client in (at.client, at.at_owner)
            ]
            assert {**here, "id": 0} == {**there, "id": 0}
            # As it is for a thread that is loaded, and not for one that is not there.
            assert here.get("error", {}).get("data", {}).get("code") != "threadNotFound", method


def test_requests_about_a_thread_need_its_owner_or_the_store_alone() -> None:
    from_store = {
        name
        for name, spec in METHODS.items()
        if "thread_id" in getattr(spec.params, "model_fields", {})
        and not spec.owned
        and spec.order is not THREAD_READ
    }
    # What these say of a thread is in the store, or with the account. A fork is begun where it is
    # asked for.
    assert from_store == {
        "account/usage/read",
        "feedback/save",
        "signal/list",
        "thread/fork",
        "thread/wake/list",
        "usage/read",
    }


async def test_an_ephemeral_thread_stays_in_its_node(tmp_path: Path, database_url: str) -> None:
    async with hop(tmp_path, database_url) as at:
        at.nodes.model.scripts = [says("one")]
        thread_id = await at.client.start_thread(ephemeral=True)
        assert (await at.client.turn(thread_id, "hi"))["status"] == "completed"
        elsewhere = await at.at_owner.refusal("thread/resume", {"threadId": thread_id})
        assert elsewhere.data["code"] == "threadNotFound"
