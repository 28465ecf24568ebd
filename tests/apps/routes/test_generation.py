"""A generation, from its port to its end, and as a thread of a server uses it."""

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator, Hashable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio.abc import TaskGroup

from app_server.apps.files.files import FileSupport
from app_server.apps.files.upload import Uploads, UploadTarget
from app_server.apps.inventory.inventory import build_inventory
from app_server.apps.inventory.names import RESOURCES, allocate_routes
from app_server.apps.routes import session
from app_server.apps.routes.backing import RouteBounds
from app_server.apps.routes.generation import Generation, GenerationPorts, open_generation
from app_server.extensions.contract.registration import Registration, RuntimeMetadata
from app_server.extensions.contract.registry import ExtensionRegistry
from protocol.model import JsonObject
from tests.support.apps.files.peer import FileStore, FolderEnvironment
from tests.support.apps.peer import Exchange, FakePool, Guard, Hold, listed, returns, serve_tools
from tests.support.harness import WAIT_S, WireClient, claim, serve
from tests.support.harness import Served as ServedServer
from tests.support.mcp_peers.shelf import Shelf
from tests.support.model import calls

READ_ONLY: JsonObject = {"annotations": {"readOnlyHint": True}}
CAL = "codex_apps__cal"
ASKED = "mcpServer/elicitation/request"
STARTED = "mcpServer/startupStatus/updated"


async def is_open(port: int) -> bool:
    try:
        stream = await anyio.connect_tcp("127.0.0.1", port)
    except OSError:
        return False
    await stream.aclose()
    return True


async def ended(generation: Generation) -> None:
    """Wait until a generation has ended by itself: its last lease is released, its port closed."""
    with anyio.fail_after(WAIT_S):
        await generation.ended()
    assert (generation.leases, await is_open(generation.port)) == (0, False)


async def opened(tasks: TaskGroup) -> Generation:
    async def refresh() -> None:
        raise AssertionError

    inventory = build_inventory([listed("look")])
    routes = allocate_routes(inventory)
    ports = GenerationPorts(FakePool(), Guard(), None, refresh)
    return await open_generation(tasks, inventory, routes, ports)


async def test_the_last_lease_ends_a_generation_and_not_an_earlier_one() -> None:
    async with serve_tools([listed("look")]) as served:
        generation = served.generation
        async with served.client() as client:
            await client.call("look")
            one, other = generation.lease(), generation.owner.lease()
            assert generation.leases == 2
            one.release()
            one.release()
            assert generation.leases == 1
            await client.call("look")
            other.release()
            assert (generation.leases, generation.is_closing) == (0, True)
            with anyio.fail_after(WAIT_S):
                await generation.close()
            assert not await is_open(generation.port)
            assert served.pool.sessions == set()
            late = generation.lease()
            late.release()
            await generation.close()


async def test_two_projections_of_a_generation_have_one_owner() -> None:
    async with serve_tools([listed("look")]) as one, serve_tools([listed("look")]) as other:
        generation = one.generation
        assert generation.owner == generation.owner
        assert generation.owner != other.generation.owner
        assert generation.id not in repr(generation.owner)


@claim("apps:t-37")
async def test_shutting_down_ends_what_runs_within_a_second_and_closes_the_port() -> None:
    hold, bounds = Hold(), RouteBounds(waiting_calls=1)
    async with (
        serve_tools([listed("look")], FakePool(hold), bounds=bounds) as served,
        served.client() as one,
        served.client() as other,
        anyio.create_task_group() as tasks,
    ):
        refusals = []
        changes = served.pool.changes

        async def call(client: Any) -> None:
            refusals.append(await client.refusal("tools/call", {"name": "look"}))
            changes.note()

        for client in (one, other, other, other):
            tasks.start_soon(call, client)
        # One call of each client runs, one waits behind the second, and one was too much.
        await changes.until(lambda: (len(served.pool.exchanges), len(refusals)) == (2, 1))
        assert refusals.pop() == (-32603, "more than 1 calls wait", None)
        with anyio.fail_after(WAIT_S):
            await served.generation.close()
        assert not await is_open(served.generation.port)
    assert refusals == [(-32603, "these app servers have been shut down", None)] * 3
    assert (hold.cancelled.is_set(), served.pool.sessions) == (True, set())


async def test_a_generation_that_has_ended_is_freed_without_the_garbage_collector() -> None:
    gc.disable()
    try:
        async with anyio.create_task_group() as tasks:
            generation = await opened(tasks)
            owner, lease = generation.owner, generation.lease()
            assert owner == generation.owner
            freed = anyio.Event()
            watched = weakref.ref(generation, lambda _: freed.set())
            del generation, owner
            lease.release()
            with anyio.fail_after(WAIT_S):
                await freed.wait()
            assert watched() is None
    finally:
        gc.enable()


async def test_an_endpoint_that_hangs_keeps_no_port_open(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Hanging(FakePool):
        async def close(self, key: Hashable) -> None:
            await asyncio.Event().wait()

    bounds = RouteBounds(close_s=0)
    async with serve_tools([listed("look")], Hanging(), bounds=bounds) as served:
        async with served.client() as client:
            await client.call("look")
            with anyio.fail_after(WAIT_S):
                await served.generation.close()
        assert not await is_open(served.generation.port)
    said = [record.getMessage() for record in caplog.records if record.name == session.__name__]
    assert said == ["a session with the endpoint did not end within 0 s"]


async def test_a_task_group_that_is_cancelled_leaves_no_port_behind() -> None:
    async with anyio.create_task_group() as tasks:
        generation = await opened(tasks)
        assert await is_open(generation.port)
        tasks.cancel_scope.cancel()
    assert not await is_open(generation.port)
    with anyio.fail_after(WAIT_S):
        await generation.close()


async def test_without_a_port_there_is_no_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise OSError(24, "Too many open files")

    monkeypatch.setattr("app_server.runtime.http.loopback_server.socket.socket.bind", refuse)
    async with anyio.create_task_group() as tasks:
        with pytest.raises(OSError, match="Too many open files"):
            await opened(tasks)


async def test_an_inventory_without_connectors_has_its_resources() -> None:
    async with serve_tools([]) as served, served.client(RESOURCES) as client:
        served.pool.answer = returns({"resources": []})
        assert await client.request("resources/list") == {"resources": []}


# Through a thread of a server.


def registrations(generation: Generation) -> Sequence[Registration]:
    """Register every route, as whoever publishes a generation does."""
    servers = [route.server for route in generation.routes]
    return [
        Registration(
            server,
            {"url": generation.url(server)}
            | ({"enabled_tools": []} if server == RESOURCES else {}),
            generation.bearer(server),
            generation.owner,
            RuntimeMetadata(trusts_effective_input=True),
        )
        for server in (RESOURCES, *servers)
    ]


@asynccontextmanager
async def serve_thread(
    tmp_path: Path, generation: Generation, config: str = "", **capabilities: Any
) -> AsyncIterator[tuple[ServedServer, WireClient, Shelf, str]]:
    """Start a thread of a server whose extension registers a generation."""
    shelf = Shelf("apps", *registrations(generation))
    async with (
        serve(tmp_path, config=config, extensions=ExtensionRegistry([shelf])) as served,
        served.client(**capabilities) as client,
    ):
        thread_id = await client.start_thread()
        started = 0
        while started < len(generation.routes) + 1:
            await client.wait_for(STARTED, lambda p: p["status"] == "ready")
            started += 1
        yield served, client, shelf, thread_id


async def run_call(
    served: ServedServer, client: WireClient, thread_id: str, arguments: JsonObject
) -> list[Any]:
    """Run a turn whose model calls the tool `look`; gives all that was said."""
    function = {"namespace": f"mcp__{CAL}", "name": "look", "arguments": arguments}
    served.model.scripts.append(calls(function))
    params = {"threadId": thread_id, "input": [{"type": "text", "text": "go"}]}
    await client.call("turn/start", params)
    return await client.until("turn/completed")


async def test_a_turn_calls_a_tool_of_an_app_as_that_of_any_server(tmp_path: Path) -> None:
    tool = listed("Look", meta={"_codex_apps": {"resource_uri": "/cal/look"}}, **READ_ONLY)
    async with (
        serve_tools([listed("look", "drive"), tool]) as apps,
        serve_thread(tmp_path, apps.generation) as (served, client, _, thread_id),
    ):
        assert apps.generation.leases == 3
        messages = await run_call(served, client, thread_id, {"a": 1})
        [item] = [
            m["params"]["item"]
            for m in messages
            if m.get("method") == "item/completed" and m["params"]["item"]["type"] == "mcpToolCall"
        ]
        assert (item["server"], item["tool"], item["status"], item["result"]["content"]) == (
            CAL,
            "look",
            "completed",
            [{"type": "text", "text": "done"}],
        )
        [(_, sent)] = apps.pool.asked()
        assert (sent["name"], sent["arguments"]) == ("Look", {"a": 1})
        assert sent["_meta"]["threadId"] == thread_id
        assert sent["_meta"]["_codex_apps"]["resource_uri"] == "/cal/look"
        names = [n["name"] for n in served.model.requests[0]["tools"] if n["type"] == "namespace"]
        assert names == ["mcp__codex_apps__cal", "mcp__codex_apps__drive"]
        await client.call("thread/archive", {"threadId": thread_id})
        await ended(apps.generation)


@claim("apps:r3")
async def test_a_turn_whose_environment_has_no_instance_uploads_nothing(tmp_path: Path) -> None:
    schema = {"type": "object", "properties": {"file": {"type": "object"}}}
    tool = listed("look", meta={"openai/fileParams": ["file"]}, inputSchema=schema, **READ_ONLY)
    (tmp_path / "a").write_bytes(b"a")
    async with FileStore().serve() as store:
        uploads = Uploads(UploadTarget(store.api, {}))
        files = FileSupport(FolderEnvironment(tmp_path), uploads)
        async with (
            serve_tools([tool], files=files) as apps,
            serve_thread(tmp_path, apps.generation) as (served, client, _, thread_id),
        ):
            messages = await run_call(served, client, thread_id, {"file": "a"})
            assert (store.requests, apps.pool.exchanges) == ([], [])
            await run_call(served, client, thread_id, {})
        [error] = [
            m["params"]["item"]["error"]["message"]
            for m in messages
            if m.get("method") == "item/completed" and m["params"]["item"]["type"] == "mcpToolCall"
        ]
    because = "upload of `a` for `file` failed: the instance of the environment is not known"
    assert error.endswith(f"Mcp error: -32602: {because}")
    [(_, sent)] = apps.pool.asked()
    assert [key for key in sent["_meta"] if "sandbox" in key] == []
    assert str(tmp_path) not in str(sent)


async def test_a_question_of_the_endpoint_reaches_the_user_of_the_thread(tmp_path: Path) -> None:
    async def ask(exchange: Exchange) -> JsonObject:
        schema = {"type": "object", "properties": {}}
        said = await exchange.peer.elicit({"message": "Which?", "requestedSchema": schema})
        return {"content": [{"type": "text", "text": said["action"]}]}

    tool = listed("look", **READ_ONLY)
    async with (
        serve_tools([tool], FakePool(ask)) as apps,
        serve_thread(tmp_path, apps.generation) as (_, client, _, thread_id),
    ):
        params = {"threadId": thread_id, "server": CAL, "tool": "look"}
        call = await client.request("mcpServer/tool/call", params)
        question = await client.wait_for(ASKED)
        assert (question["params"]["serverName"], question["params"]["message"]) == (CAL, "Which?")
        await client.send({"id": question["id"], "result": {"action": "accept", "content": {}}})
        answer = await client.answer(call)
        assert answer["result"]["content"] == [{"type": "text", "text": "accept"}]


@claim("apps:r4")
async def test_a_call_finishes_at_its_generation_while_new_ones_go_to_the_next(
    tmp_path: Path,
) -> None:
    hold = Hold()
    tool = listed("look", **READ_ONLY)
    async with (
        serve_tools([tool], FakePool(hold)) as old,
        serve_tools([tool]) as new,
        serve_thread(tmp_path, old.generation) as (_, client, shelf, thread_id),
    ):
        published = old.generation.lease()
        params = {"threadId": thread_id, "server": CAL, "tool": "look"}
        slow = await client.request("mcpServer/tool/call", params)
        await hold.wait_until_reached()
        newer = new.generation.lease()
        shelf.publish(*registrations(new.generation))
        published.release()
        await client.turn(thread_id, "hi")
        fresh = await client.call("mcpServer/tool/call", params)
        assert fresh["content"] == [{"type": "text", "text": "done"}]
        assert (len(old.pool.exchanges), len(new.pool.exchanges)) == (1, 1)
        assert await is_open(old.generation.port)
        hold.let_go.set()
        answer = await client.answer(slow)
        assert answer["result"]["content"] == [{"type": "text", "text": "done"}]
        await ended(old.generation)
        assert new.generation.leases == 3
        newer.release()


@claim("apps:r4")
async def test_after_a_change_of_credentials_a_thread_reaches_nothing_there(
    tmp_path: Path,
) -> None:
    tool = listed("look", **READ_ONLY)
    async with (
        serve_tools([tool]) as apps,
        serve_thread(tmp_path, apps.generation) as (_, client, _, thread_id),
    ):
        apps.guard.held = False
        params = {"threadId": thread_id, "server": CAL, "tool": "look"}
        refusal = await client.refusal("mcpServer/tool/call", params)
        assert "401" in refusal.message
        assert apps.pool.exchanges == []


@pytest.mark.slow
async def test_forty_sessions_call_at_once() -> None:
    reached = 0
    all_reached = asyncio.Event()

    async def together(exchange: Exchange) -> JsonObject:
        nonlocal reached
        reached += 1
        if reached == 40:
            all_reached.set()
        await all_reached.wait()
        return {"content": []}

    async with serve_tools([listed("look")], FakePool(together)) as served:

        async def one() -> None:
            async with served.client() as client:
                assert await client.call("look") == {"content": []}

        async with anyio.create_task_group() as tasks:
            for _ in range(40):
                tasks.start_soon(one)
        await served.pool.changes.until(lambda: not served.pool.sessions)
    assert len(served.pool.closed) == 40
