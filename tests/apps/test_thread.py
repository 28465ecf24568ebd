"""The Apps service as a thread has it: what wins a name, what is approved, what is replaced."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import httpx
import pytest

from app_server.apps.routes.generation import Generation
from app_server.clients.demo.hosted.endpoint import (
    READS,
    WRITES,
    HostedConnector,
)
from app_server.extensions.contract.registration import Contributor
from app_server.extensions.contract.registry import ExtensionRegistry
from tests.support.apps.hosted import connector
from tests.support.apps.service import LIST, Who, nothing, open_apps, runs
from tests.support.apps.threads import CAL, CALL, STARTED, app, open_desk
from tests.support.harness import WAIT_S, claim, serve
from tests.support.http_peer import NO_CERTIFICATES
from tests.support.mcp_peers.registrations import registered
from tests.support.mcp_peers.shelf import Generation as Owner
from tests.support.mcp_peers.shelf import Shelf
from tests.support.mcp_peers.web_peer import WebPeer
from tests.support.model import calls, says


async def ended(generation: Generation) -> bool:
    """Wait for the end of a generation; gives whether its port is closed."""
    with anyio.fail_after(WAIT_S):
        await generation.ended()
    try:
        stream = await anyio.connect_tcp("127.0.0.1", generation.port)
    except OSError:
        return True
    await stream.aclose()
    return False


# What wins a name.


@asynccontextmanager
async def contributing(tmp_path: Path, kind: str) -> AsyncIterator[tuple[Contributor, str]]:
    """Open a contributor of a server CAL: the apps, or one that has nothing to do with them."""
    if kind == "apps":
        async with open_apps(tmp_path / "apps") as apps:
            await apps.service.prepare_mcp_servers(apps.config)
            yield apps.service, f'chatgpt_base_url = "{apps.hosted.endpoint.base_url}"\n'
        return
    look = {
        "name": "_look",
        "inputSchema": {"type": "object"},
        "annotations": {"readOnlyHint": True},
    }
    async with WebPeer(tools=[look]).serve() as peer:
        yield Shelf("shelf", registered(peer, Owner("gen"), name=CAL)), ""


@claim("apps:r1")
@pytest.mark.parametrize("kind", ["apps", "shelf"])
@pytest.mark.parametrize(
    ("enabled", "namespaces", "status"),
    [("true", [f"mcp__{CAL}"], "connected"), ("false", [], "disabled")],
)
async def test_a_configured_server_hides_behind_a_registered_one_or_forbids_its_name(
    tmp_path: Path, kind: str, enabled: str, namespaces: list[str], status: str
) -> None:
    async with (
        WebPeer(tools=[]).serve() as peer,
        contributing(tmp_path, kind) as (contributor, config),
    ):
        split = 'apps_service = { status_view = "split" }\n'
        table = f'[mcp_servers.{CAL}]\nurl = "{peer.url}"\nenabled = {enabled}\n'
        async with (
            serve(
                tmp_path / "home",
                config=config + split + table,
                extensions=ExtensionRegistry([contributor]),
            ) as served,
            served.client() as client,
        ):
            thread_id = await client.start_thread()
            if enabled == "true":
                await client.wait_for(STARTED, lambda p: (p["name"], p["status"]) == (CAL, "ready"))
            await client.turn(thread_id, "hi")
            tools = served.model.requests[-1].get("tools", [])
            assert [entry["name"] for entry in tools if entry["type"] == "namespace"] == namespaces
            listed_ = await client.call("mcpServerStatus/list", {"threadId": thread_id})
            [found] = [e["runtimeStatus"] for e in listed_["data"] if e["name"] == CAL]
            assert found == status
            # What the name hides, or forbids, is never spoken to.
            assert peer.seen == []


@claim("apps:r1")
async def test_a_disabled_bundle_takes_all_servers_away_and_asks_nobody(tmp_path: Path) -> None:
    bundle = '[mcp_servers.codex_apps]\nurl = "http://127.0.0.1:1/mcp"\nenabled = false\n'
    async with open_desk(tmp_path, config=bundle) as desk:
        desk.thread_id = await desk.client.start_thread()
        await desk.client.turn(desk.thread_id, "hi")
        await desk.client.call("config/mcpServer/reload")
        await desk.client.turn(desk.thread_id, "hi")
        assert desk.namespaces() == []
        assert desk.apps.service.shown_to(desk.thread_id) is None
        assert desk.apps.hosted.script.names() == []


# What the model sees.


@claim("apps:visibility")
async def test_a_tool_for_user_interfaces_is_an_apps_and_not_the_models(tmp_path: Path) -> None:
    bare = HostedConnector("cal", "Cal", "An app of a test.")
    tools = tuple(
        bare.tool(name, name, {}, READS, nothing, meta={"ui": {"visibility": visibility}})
        for name, visibility in {"look": ["model", "app"], "tick": ["app"]}.items()
    )
    async with open_desk(tmp_path, HostedConnector("cal", "Cal", "", tools)) as desk:
        await desk.open_thread()
        functions = [{"namespace": f"mcp__{CAL}", "name": name} for name in ("_tick", "_look")]
        desk.served.model.scripts += [calls(*functions), says("done")]
        await desk.client.turn(desk.thread_id, "go")
        first, last = desk.served.model.requests
        [declared] = [entry["tools"] for entry in first["tools"] if entry["type"] == "namespace"]
        assert [tool["name"] for tool in declared] == ["_look"]
        refused, _ = [item["output"] for item in last["input"] if "output" in item]
        assert refused == f"unsupported call: mcp__{CAL}_tick"
        assert desk.forwarded() == 1
        answer = await desk.client.answer(await desk.direct(tool="_tick"))
        assert answer["result"]["content"] == [{"type": "text", "text": "did"}]


# What is approved.


@claim("apps:r2")
async def test_an_approval_follows_its_app_to_other_names_and_no_other_app_inherits_it(
    tmp_path: Path,
) -> None:
    mine, theirs = app("one", "Cal", "drop", WRITES), app("two", "Cal", "drop", WRITES)
    async with open_desk(tmp_path, mine) as desk:
        await desk.open_thread()
        assert desk.route_of("one") == (CAL, "_drop")
        session = {"action": "accept", "_meta": {"persist": "session"}}
        questions, item = await desk.run(CAL, "_drop", session)
        [question] = questions
        assert (question["_meta"]["connector_id"], item["status"]) == ("one", "completed")
        # A second app of that name: both have other names, and the approval holds.
        await desk.publish(mine, theirs)
        renamed, other = desk.route_of("one"), desk.route_of("two")
        assert len({CAL, renamed[0], other[0]}) == 3
        questions, item = await desk.run(*renamed)
        assert (questions, item["status"]) == ([], "completed")
        questions, item = await desk.run(*other, {"action": "decline"})
        assert ([q["_meta"]["connector_id"] for q in questions], item["status"]) == (
            ["two"],
            "failed",
        )
        # It inherits the first name, and not the approval.
        await desk.publish(theirs)
        assert desk.route_of("two") == (CAL, "_drop")
        questions, item = await desk.run(
            CAL, "_drop", {"action": "accept", "_meta": {"persist": "always"}}
        )
        assert [q["_meta"]["connector_id"] for q in questions] == ["two"]
        assert item["status"] == "completed"
        assert [tuple(path) for path in desk.approved] == [
            ("apps", "two", "tools", "cal_drop", "approval_mode")
        ]
        assert desk.forwarded() == 3


# What is replaced.


@claim("apps:r4")
async def test_a_call_that_hangs_finishes_where_it_began_while_new_ones_go_elsewhere(
    tmp_path: Path,
) -> None:
    async with open_desk(tmp_path) as desk:
        await desk.open_thread()
        script, old = desk.apps.hosted.script, desk.generation()
        held = script.holds[CALL] = anyio.Event()
        slow = await desk.direct()
        with anyio.fail_after(WAIT_S):
            await script.when(CALL).wait()
        del script.holds[CALL]
        cal = desk.apps.hosted.endpoint.connectors[0]
        await desk.publish(cal, connector(*runs("read"), id_="mail"))
        await desk.client.turn(desk.thread_id, "hi")
        assert desk.namespaces() == [f"mcp__{CAL}", "mcp__codex_apps__mail"]
        assert desk.generation() is not old
        fresh = await desk.client.answer(await desk.direct())
        assert fresh["result"]["content"] == [{"type": "text", "text": "did"}]
        assert not old.is_closing
        held.set()
        answer = await desk.client.answer(slow)
        assert answer["result"]["content"] == [{"type": "text", "text": "did"}]
        assert await ended(old)
        assert desk.forwarded() == 2


@claim("apps:r4")
async def test_after_a_change_of_credentials_only_the_call_that_was_forwarded_finishes(
    tmp_path: Path,
) -> None:
    async with open_desk(tmp_path) as desk:
        await desk.open_thread()
        script, old = desk.apps.hosted.script, desk.generation()
        held = script.holds[CALL] = anyio.Event()
        slow = await desk.direct()
        with anyio.fail_after(WAIT_S):
            await script.when(CALL).wait()
        token = desk.apps.hosted.endpoint.token.get_secret_value()
        desk.apps.auth.change(Who(token, chatgpt_user_id="other"))
        async with httpx.AsyncClient(
            verify=NO_CERTIFICATES, timeout=WAIT_S, trust_env=False
        ) as http:
            for route in old.routes:
                bearer = old.bearer(route.server).get_secret_value()
                for method in ("POST", "GET", "DELETE"):
                    answer = await http.request(
                        method,
                        old.url(route.server),
                        headers={"authorization": f"Bearer {bearer}"},
                    )
                    assert answer.status_code == 401
        assert desk.forwarded() == 1
        held.set()
        finished = await desk.client.answer(slow)
        assert finished["result"]["content"] == [{"type": "text", "text": "did"}]
        # The next request of the model is the boundary at which the old servers are let go.
        await desk.client.turn(desk.thread_id, "hi")
        assert await ended(old)
        assert desk.forwarded() == 1


@claim("apps:b1")
async def test_what_changes_nothing_of_a_server_leaves_its_client_as_it_is(tmp_path: Path) -> None:
    async with open_desk(tmp_path) as desk:
        await desk.open_thread()
        await desk.client.answer(await desk.direct())
        generation = desk.generation()
        before = len(desk.client.transcript)
        # Others publish, the apps are fetched again, policy and words for the model change.
        desk.shelf.publish()
        await desk.client.turn(desk.thread_id, "hi")
        await desk.publish(*desk.apps.hosted.endpoint.connectors)
        await desk.client.turn(desk.thread_id, "hi")
        with (desk.served.home / "config.toml").open("a") as file:
            file.write('[apps.cal]\ndefault_tools_approval_mode = "approve"\n')
        await desk.client.call("config/mcpServer/reload")
        await desk.client.turn(desk.thread_id, "hi")
        await desk.client.answer(await desk.direct())
        told = [
            json.loads(line.removeprefix("< "))["params"]
            for line in desk.client.transcript[before:]
            if STARTED in line
        ]
        # The server that has another policy says that it goes on; no other has anything to say.
        assert [(p["name"], p["status"]) for p in told] == [(CAL, "ready")]
        assert desk.generation() is generation
        names = desk.apps.hosted.script.names()
        # One session for each fetch, and one for both calls.
        assert names.count("initialize") == names.count(LIST) + 1
        assert names.count(CALL) == 2


@claim("apps:t-50")
async def test_the_item_of_a_call_names_its_app_as_it_was_when_the_call_began(
    tmp_path: Path,
) -> None:
    async with open_desk(tmp_path, app("cal", "Calendar", "look")) as desk:
        await desk.open_thread()
        script = desk.apps.hosted.script
        held = script.holds[CALL] = anyio.Event()
        server, tool = desk.route_of("cal")
        desk.served.model.scripts += [calls({"namespace": f"mcp__{server}", "name": tool})]
        params = {"threadId": desk.thread_id, "input": [{"type": "text", "text": "go"}]}
        await desk.client.call("turn/start", params)
        begun = await desk.client.wait_for(
            "item/started", lambda p: p["item"]["type"] == "mcpToolCall"
        )
        with anyio.fail_after(WAIT_S):
            await script.when(CALL).wait()
        desk.apps.hosted.endpoint.connectors[:] = [app("cal", "Kalender", "look")]
        old = desk.generation()
        await desk.client.call("config/mcpServer/reload")
        renamed = ("codex_apps__kalender", "ready")
        await desk.client.wait_for(STARTED, lambda p: (p["name"], p["status"]) == renamed)
        assert desk.generation() is not old
        held.set()
        over = await desk.client.wait_for(
            "item/completed", lambda p: p["item"]["type"] == "mcpToolCall"
        )
        context = begun["params"]["item"]["appContext"]
        assert (context["connectorId"], context["appName"]) == ("cal", "Calendar")
        assert over["params"]["item"]["appContext"] == context
        assert over["params"]["item"]["status"] == "completed"
        await desk.client.until("turn/completed")
        # The next one is named as it is now.
        _, item = await desk.run(*desk.route_of("cal"))
        assert item["appContext"]["appName"] == "Kalender"
