"""Servers that are registered with what they say of themselves, and servers that are replaced."""

import asyncio
import gc
import json
import logging
import os
import weakref
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from pydantic import SecretStr

from app_server.apps.files.files import FileSupport
from app_server.apps.inventory.names import RESOURCES
from app_server.apps.routes.handshakes import make_manifests
from app_server.extensions.contract.registration import Manifest, Registration, Tier
from app_server.mcp.bounds import MAX_LISTED
from app_server.mcp.catalog.catalog import resolve_servers
from app_server.mcp.catalog.config import HttpTransport, ServerConfig
from app_server.mcp.servers.pool import ServerPool
from app_server.mcp.servers.server import McpServer
from app_server.mcp.tools.listing import Listing
from protocol.model import JsonObject
from tests.support.apps.files.peer import FolderEnvironment
from tests.support.apps.peer import connect, listed, serve_tools
from tests.support.apps.threads import app, open_desk
from tests.support.harness import WireClient, claim
from tests.support.mcp_peers.no_processes import NoProcesses
from tests.support.mcp_peers.registrations import BEARER, STARTED, call, open_shop, registered, tool
from tests.support.mcp_peers.shelf import Generation
from tests.support.mcp_peers.web_peer import Answer, WebPeer
from tests.support.model import calls, says

HELLO: JsonObject = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "shelved", "version": "1"},
    "instructions": "Look at shelves.",
}


def with_manifest(peer: WebPeer, owner: Generation, *names: str) -> Registration:
    manifest = Manifest(HELLO, [tool(name) for name in names])
    return Registration("shelved", {"url": peer.url}, SecretStr(BEARER), owner, manifest=manifest)


def news(client: WireClient, since: int = 0) -> list[tuple[str, str]]:
    """Return the notifications of servers that a client got."""
    told = [line for line in client.transcript[since:] if STARTED in line and line.startswith("<")]
    params = [json.loads(line.removeprefix("< "))["params"] for line in told]
    return [(one["name"], one["status"]) for one in params]


def declared(request: Any) -> dict[str, list[str]]:
    """Return the namespaces of a model request with their tools."""
    return {
        entry["name"]: [one["name"] for one in entry["tools"]]
        for entry in request.get("tools", [])
        if entry["type"] == "namespace"
    }


@claim("extensions:manifest")
async def test_a_server_with_a_manifest_is_asked_nothing_before_it_is_called(
    tmp_path: Path,
) -> None:
    async with open_shop(tmp_path) as shop:
        shop.shelf.publish(with_manifest(shop.peer, shop.owner, "look"))
        thread_id = await shop.thread()
        assert news(shop.client) == [("shelved", "starting"), ("shelved", "ready")]
        status = await shop.client.call("mcpServerStatus/list", {"threadId": thread_id})
        [row] = status["data"]
        assert (row["runtimeStatus"], list(row["tools"])) == ("connected", ["look"])
        await shop.client.turn(thread_id, "hi")
        [first] = shop.served.model.requests
        assert declared(first) == {"mcp__shelved": ["look"]}
        assert shop.peer.seen == []
        for _ in range(2):
            shop.served.model.scripts += [calls(call()), says("done")]
            await shop.client.turn(thread_id, "go")
        # One session for both calls, and no list: it is known.
        assert shop.peer.methods().count("initialize") == 1
        assert shop.peer.methods().count("tools/call") == 2
        assert "tools/list" not in shop.peer.methods()
        assert shop.peer.headers[0]["authorization"] == f"Bearer {BEARER}"
        await shop.client.call("thread/unsubscribe", {"threadId": thread_id})
    assert shop.owner.leases == 0


@claim("extensions:manifest")
async def test_a_server_that_cannot_be_reached_when_it_is_called_fails_the_call(
    tmp_path: Path,
) -> None:
    async with open_shop(tmp_path) as shop:
        gone = WebPeer(url="http://127.0.0.1:1/mcp")
        shop.shelf.publish(with_manifest(gone, shop.owner, "look"))
        thread_id = await shop.thread()
        direct = {"threadId": thread_id, "server": "shelved", "tool": "look"}
        for _ in range(2):
            refusal = await shop.client.refusal("mcpServer/tool/call", direct)
            assert "Connection refused" in refusal.message


@claim("extensions:manifest")
async def test_another_way_to_the_same_server_sends_no_notification(tmp_path: Path) -> None:
    async with open_shop(tmp_path) as shop, WebPeer(tools=[tool()]).serve() as other:
        shop.shelf.publish(with_manifest(shop.peer, shop.owner, "look"))
        thread_id = await shop.thread()
        before = len(shop.client.transcript)
        newer = Generation("gen-2")
        shop.shelf.publish(with_manifest(other, newer, "look"))
        await shop.client.turn(thread_id, "hi")
        assert (shop.owner.leases, newer.leases) == (0, 1)
        direct = {"threadId": thread_id, "server": "shelved", "tool": "look"}
        await shop.client.call("mcpServer/tool/call", direct)
        assert news(shop.client, before) == []
        assert (shop.peer.seen, other.methods().count("tools/call")) == ([], 1)
        # With other tools it goes on, and says so.
        shop.shelf.publish(with_manifest(other, newer, "look", "see"))
        await shop.client.turn(thread_id, "hi")
        assert news(shop.client, before) == [("shelved", "ready")]
        assert declared(shop.served.model.requests[-1]) == {"mcp__shelved": ["look", "see"]}


@claim("extensions:manifest")
def test_manifests_are_bounded_equal_by_value_and_of_the_runtime_tier(
    caplog: pytest.LogCaptureFixture,
) -> None:
    owner = Generation("gen")
    peer = WebPeer(url="http://127.0.0.1:1/mcp")
    one, same, other = (with_manifest(peer, owner, name) for name in ("a", "a", "b"))
    assert (one == same, one == other) == (True, False)
    assert hash(one) == hash(same)
    resolved = resolve_servers({}, [one])["shelved"]
    assert resolved.known == Listing.of(HELLO, [tool("a")], None)
    # What is made of it is shared by all threads.
    assert resolve_servers({}, [same])["shelved"].known is resolved.known
    many = with_manifest(peer, owner, *(str(number) for number in range(MAX_LISTED + 1)))
    with caplog.at_level(logging.WARNING):
        assert resolve_servers({}, [many]) == {}
    assert f"lists more than {MAX_LISTED} tools" in caplog.text
    with pytest.raises(ValueError, match="belongs to the runtime tier"):
        Registration("x", {"url": "http://x"}, tier=Tier.PLUGIN, manifest=one.manifest)


@claim("extensions:no-gap")
async def test_a_replaced_server_is_shown_until_the_new_one_has_started(tmp_path: Path) -> None:
    config = "mcp_optional_startup_grace_ms = 50\n"
    async with open_shop(tmp_path, config=config) as shop, WebPeer().serve() as other:
        shop.put()
        thread_id = await shop.thread()
        other.tools = [tool("see")]
        # The first list of the new server does not come, and then it is refused.
        refused = asyncio.Event()
        other.answers["tools/list"] = [Answer(403, after=refused)]
        shop.shelf.publish(registered(other, Generation("gen-2")))
        await shop.client.turn(thread_id, "hi")
        assert declared(shop.served.model.requests[-1]) == {"mcp__shelved": ["look"]}
        refused.set()
        await shop.client.wait_for(STARTED, lambda p: p["status"] == "failed")
        await shop.client.turn(thread_id, "hi")
        assert declared(shop.served.model.requests[-1]) == {}
        shop.shelf.publish(registered(other, Generation("gen-3")))
        await shop.client.turn(thread_id, "hi")
        await shop.client.call(
            "mcpServer/tool/call", {"threadId": thread_id, "server": "shelved", "tool": "see"}
        )
        await shop.client.turn(thread_id, "hi")
        assert declared(shop.served.model.requests[-1]) == {"mcp__shelved": ["see"]}


async def test_a_server_that_was_replaced_is_freed_without_the_garbage_collector() -> None:
    transport = HttpTransport("http://127.0.0.1:9/mcp")
    config = ServerConfig("known", transport, known=Listing(tools={"look": {}}))

    server = McpServer(config, ServerPool(NoProcesses()), lambda *step: None)
    freed = weakref.ref(server)
    gc.disable()
    try:
        async with anyio.create_task_group() as tasks:
            assert server.join(tasks, "/")
            assert server.status == "connected"
            server.end()
        del server
        assert freed() is None
    finally:
        gc.enable()


# Those of apps.


@claim("apps:manifests")
@pytest.mark.parametrize("has_files", [False, True])
async def test_a_manifest_is_what_the_route_answers(tmp_path: Path, has_files: bool) -> None:
    files = FileSupport(FolderEnvironment(tmp_path), None) if has_files else None  # type: ignore[arg-type]
    tools = [
        listed("cal_look", title="Cal_Look", description="Look."),
        listed("cal_put", meta={"openai/fileParams": ["file"]})
        | {"inputSchema": {"type": "object", "properties": {"file": {"type": "object"}}}},
        listed("send", "mail", meta={"connector_description": "Mail."}),
    ]
    async with serve_tools(tools, files=files) as served:
        routes = served.generation.routes
        manifests = make_manifests(routes, has_files=has_files, old_routes={}, before={})
        assert list(manifests) == [RESOURCES, "codex_apps__cal", "codex_apps__mail"]
        for server, manifest in manifests.items():
            async with connect(
                served.generation.url(server), served.generation.bearer(server)
            ) as client:
                assert client.hello == manifest.hello
                if "tools" in client.hello["capabilities"]:
                    answer = await client.request("tools/list")
                    assert answer == {"tools": list(manifest.tools)}
                else:
                    assert (server, manifest.tools) == (RESOURCES, ())
        known = {route.server: route for route in routes}
        again = make_manifests(routes, has_files=has_files, old_routes=known, before=manifests)
        assert all(again[server] is manifest for server, manifest in manifests.items())


@claim("apps:size")
async def test_apps_take_no_connection_and_no_turn_is_without_them(tmp_path: Path) -> None:
    many = [app(f"app-{number}", f"App{number}", "look") for number in range(40)]
    names = sorted(f"mcp__codex_apps__app{number}" for number in range(40))
    async with open_desk(tmp_path, *many) as desk:
        await desk.apps.service.prepare_mcp_servers(desk.apps.config)
        before = len(os.listdir("/proc/self/fd"))
        threads = [await desk.client.start_thread() for _ in range(3)]
        for thread_id in threads:
            await desk.client.turn(thread_id, "hi")
            assert sorted(desk.namespaces()) == names
        assert len(os.listdir("/proc/self/fd")) - before < 16
        told = len(desk.client.transcript)
        # For the same again nobody is notified.
        await desk.client.call("config/mcpServer/reload")
        await desk.client.turn(threads[0], "hi")
        assert (news(desk.client, told), sorted(desk.namespaces())) == ([], names)
        # Other tools are there in the very next turn, of one app and of all.
        for changed in ([*many[1:], app("app-0", "App0", "see")], [app("new", "New", "see")]):
            desk.apps.hosted.endpoint.connectors[:] = changed
            await desk.client.call("config/mcpServer/reload")
            for thread_id in threads:
                await desk.client.turn(thread_id, "hi")
                shown = declared(desk.served.model.requests[-1])
                assert "cal_see" in [name for names_ in shown.values() for name in names_]
                assert len(shown) == len(changed)
