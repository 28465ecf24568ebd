"""Servers of apps in what clients ask of MCP servers: one entry or several, calls, resources."""

import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from app_server.apps.inventory.names import RESOURCES
from app_server.extensions.contract.registration import (
    ApprovalIdentity,
    Registration,
    RuntimeMetadata,
    Telemetry,
    ToolMetadata,
)
from app_server.extensions.contract.registry import ExtensionRegistry
from app_server.handlers.integrations import app_servers as app_views
from app_server.mcp.tools.naming import RawName
from tests.support.apps.fake_apps import FakeApps, as_port
from tests.support.harness import Served, WireClient, claim, let_stand, serve
from tests.support.mcp_peers.shelf import Generation, Shelf
from tests.support.mcp_peers.web_peer import WebPeer

STARTED = "mcpServer/startupStatus/updated"
ORIGIN = "https://chatgpt.example"
SPLIT = '[apps_service]\nstatus_view = "split"\n'
DRIVE, GMAIL = "codex_apps__drive", "codex_apps__gmail"

UPSTREAM = {
    DRIVE: {"search": "search", "read_file": "Drive Read File"},
    GMAIL: {"search": "search", "send": "GmailSend"},
}
"""Routed tools of each server, with their upstream names."""

PRIVATE = {"codex/approvalContext": {"connectedAccountEmail": "me@example.com"}}


def tool(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **more}


@dataclass
class Arcade:
    """A server with three servers of apps, and one that is none."""

    served: Served
    client: WireClient
    apps: FakeApps
    peers: dict[str, WebPeer]
    shelf: Shelf
    owner: Generation

    async def thread(self) -> str:
        """Start a thread and wait until its servers have started."""
        thread_id = await self.client.start_thread()
        ready: set[str] = set()
        while ready < set(self.peers):
            step = await self.client.wait_for(STARTED, lambda p: p["status"] != "starting")
            ready.add(step["params"]["name"])
        return thread_id

    async def entries(self, **params: Any) -> list[Any]:
        """Ask for the status of all servers."""
        answer = await self.client.call("mcpServerStatus/list", params)
        entries: list[Any] = answer["data"]
        return entries

    def called(self) -> dict[str, list[str]]:
        """Return which tools each server was called with."""
        return {
            name: [params["name"] for params in peer.called]
            for name, peer in self.peers.items()
            if peer.called
        }

    def publish(self) -> None:
        """Register the servers."""
        self.shelf.publish(
            *(
                Registration(
                    name,
                    {"url": peer.url, "enabled_tools": sorted(UPSTREAM.get(name, ()))},
                    SecretStr("s3cr3t-bearer"),
                    self.owner,
                    _metadata(name),
                )
                for name, peer in self.peers.items()
                if name != "plain"
            )
        )


def _metadata(server: str) -> RuntimeMetadata:
    connector_id = server.removeprefix(app_views.PREFIX)
    tools = {
        name: ToolMetadata(
            approval_identity=ApprovalIdentity(
                server=RESOURCES, source=f"{connector_id}-id", tool=upstream
            )
        )
        for name, upstream in UPSTREAM.get(server, {}).items()
    }
    return RuntimeMetadata(telemetry=Telemetry(origin=ORIGIN), tools=tools)


@asynccontextmanager
async def open_arcade(
    tmp_path: Path, config: str = "", *, published: bool = True
) -> AsyncIterator[Arcade]:
    peers = {
        RESOURCES: WebPeer(tools=[], resources={"ui://all": "all"}, title="Apps"),
        DRIVE: WebPeer(
            tools=[
                tool("search"),
                tool("read_file", title="Read File", _meta=PRIVATE),
                tool("off"),
            ],
            resources={"ui://drive": "drive"},
            title="Drive",
        ),
        GMAIL: WebPeer(tools=[tool("search"), tool("send")], resources={}, title="Gmail"),
        "plain": WebPeer(resources={"ui://plain": "plain"}),
    }
    async with AsyncExitStack() as stack:
        for peer in peers.values():
            await stack.enter_async_context(peer.serve())
        shelf, apps = Shelf("codex_apps"), FakeApps()
        plain = f'[mcp_servers.plain]\nurl = "{peers["plain"].url}"\n'
        registry = ExtensionRegistry([shelf])
        served = await stack.enter_async_context(
            serve(tmp_path, config=config + plain, extensions=registry, apps=as_port(apps))
        )
        client = await stack.enter_async_context(served.client())
        arcade = Arcade(served, client, apps, peers, shelf, Generation("gen-1"))
        if published:
            arcade.publish()
        yield arcade


def outline(entries: Sequence[Any]) -> dict[str, Any]:
    """Return of each entry its tools with their names, and its resources."""
    return {
        entry["name"]: (
            {shown: tool["name"] for shown, tool in entry["tools"].items()},
            [resource["uri"] for resource in entry["resources"]],
        )
        for entry in entries
    }


FOLDED = {
    RESOURCES: (
        {
            f"{DRIVE}/search": "search",
            "Drive Read File": "Drive Read File",
            f"{GMAIL}/search": "search",
            "GmailSend": "GmailSend",
        },
        ["ui://all"],
    ),
    "plain": ({"look": "look"}, ["ui://plain"]),
}
AS_THEY_ARE = {
    RESOURCES: ({}, ["ui://all"]),
    DRIVE: ({"search": "search", "read_file": "read_file"}, ["ui://drive"]),
    GMAIL: ({"search": "search", "send": "send"}, []),
    "plain": ({"look": "look"}, ["ui://plain"]),
}


def test_the_names_are_those_of_the_room_of_apps() -> None:
    assert app_views.RESOURCES == RESOURCES


@claim("apps:b6")
@pytest.mark.parametrize("with_thread", [True, False])
async def test_servers_of_apps_are_one_entry_with_upstream_names(
    tmp_path: Path, with_thread: bool
) -> None:
    async with open_arcade(tmp_path) as arcade:
        params = {"threadId": await arcade.thread()} if with_thread else {}
        entries = await arcade.entries(**params)
        assert outline(entries) == FOLDED
        apps = entries[0]
        assert (apps["serverInfo"]["title"], apps["httpOrigin"], apps["authStatus"]) == (
            "Apps",
            ORIGIN,
            "bearerToken",
        )
        assert apps["runtimeStatus"] == ("connected" if with_thread else None)
        assert apps["tools"]["Drive Read File"]["title"] == "Read File"
        assert "me@example.com" not in str(entries)
        only = await arcade.entries(**params, serverName=RESOURCES, detail="toolsAndAuthOnly")
        assert outline(only) == {RESOURCES: (FOLDED[RESOURCES][0], [])}
        assert await arcade.entries(**params, serverName=GMAIL) == []
        page = await arcade.client.call("mcpServerStatus/list", {**params, "limit": 1})
        assert (outline(page["data"]), page["nextCursor"]) == (
            {RESOURCES: FOLDED[RESOURCES]},
            "1",
        )
        rest = await arcade.entries(**params, cursor="1")
        assert outline(rest) == {"plain": FOLDED["plain"]}


@claim("apps:b6")
@pytest.mark.parametrize("with_thread", [True, False])
async def test_servers_of_apps_are_entries_of_their_own_if_that_is_wanted(
    tmp_path: Path, with_thread: bool
) -> None:
    async with open_arcade(tmp_path, SPLIT) as arcade:
        params = {"threadId": await arcade.thread()} if with_thread else {}
        entries = await arcade.entries(**params)
        assert outline(entries) == AS_THEY_ARE
        assert [
            (entry["serverInfo"]["title"], entry["httpOrigin"], entry["authStatus"])
            for entry in entries[:3]
        ] == [(title, ORIGIN, "bearerToken") for title in ("Apps", "Drive", "Gmail")]
        assert "me@example.com" not in str(entries)
        only = await arcade.entries(**params, serverName=GMAIL)
        assert outline(only) == {GMAIL: AS_THEY_ARE[GMAIL]}


@claim("apps:b6")
@pytest.mark.parametrize(
    ("dead", "tools", "error"),
    [
        ({GMAIL}, ["Drive Read File", f"{DRIVE}/search"], None),
        (
            {DRIVE, GMAIL},
            [],
            f"{DRIVE}: MCP startup failed: cannot reach http://127.0.0.1:1/mcp: Connection refused",
        ),
    ],
)
async def test_the_one_entry_says_why_it_has_no_tools_if_it_has_none(
    tmp_path: Path,
    dead: set[str],
    tools: list[str],
    error: str | None,
) -> None:
    async with open_arcade(tmp_path) as arcade:
        arcade.served.services.mcp_pool.retry_waits_s = (0, 0)
        for name in dead:
            arcade.peers[name].url = "http://127.0.0.1:1/mcp"
        arcade.publish()
        thread_id = await arcade.thread()
        (apps,) = await arcade.entries(threadId=thread_id, serverName=RESOURCES)
        assert (sorted(apps["tools"]), apps["toolsError"]) == (tools, error)
        assert apps["runtimeStatus"] == "connected"


@claim("apps:b6")
async def test_a_tool_is_called_by_its_upstream_name(tmp_path: Path) -> None:
    async with open_arcade(tmp_path) as arcade:
        thread_id = await arcade.thread()

        async def call(server: str, name: str) -> Any:
            params = {"threadId": thread_id, "server": server, "tool": name}
            return await arcade.client.call("mcpServer/tool/call", params)

        answer = await call(RESOURCES, "Drive Read File")
        assert answer["content"] == [{"type": "text", "text": "call 1"}]
        await call(RESOURCES, f"{GMAIL}/search")
        await call(GMAIL, "send")
        assert arcade.called() == {DRIVE: ["read_file"], GMAIL: ["search", "send"]}
        for name in ("search", "send", "Drive read file"):
            params = {"threadId": thread_id, "server": RESOURCES, "tool": name}
            refusal = await arcade.client.refusal("mcpServer/tool/call", params)
            assert (refusal.code, refusal.message, refusal.data) == (
                -32603,
                f"tool '{name}' is disabled for MCP server 'codex_apps'",
                {"code": "mcpToolDisabled"},
            )


async def test_names_of_called_tools_are_looked_up_on_a_worker_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, threads = app_views.AppViews.tool, set[int]()

    def tool_of(self: app_views.AppViews, server: str, tool: str) -> RawName:
        threads.add(threading.get_ident())
        return find(self, server, tool)

    monkeypatch.setattr(app_views.AppViews, "tool", tool_of)
    async with open_arcade(tmp_path) as arcade:
        params = {"threadId": await arcade.thread(), "server": RESOURCES, "tool": "GmailSend"}
        await arcade.client.call("mcpServer/tool/call", params)
    assert len(threads) == 1
    assert threading.get_ident() not in threads


@claim("apps:b6")
async def test_entries_of_their_own_have_tools_of_their_own(tmp_path: Path) -> None:
    async with open_arcade(tmp_path, SPLIT) as arcade:
        thread_id = await arcade.thread()
        params = {"threadId": thread_id, "server": DRIVE, "tool": "read_file"}
        await arcade.client.call("mcpServer/tool/call", params)
        assert arcade.called() == {DRIVE: ["read_file"]}
        params |= {"server": RESOURCES, "tool": "Drive Read File"}
        refusal = await arcade.client.refusal("mcpServer/tool/call", params)
        assert refusal.data == {"code": "mcpToolDisabled"}


@claim("apps:b6")
@pytest.mark.parametrize("config", ["", SPLIT])
@pytest.mark.parametrize("with_thread", [True, False])
async def test_a_resource_is_read_by_the_server_of_the_app_that_is_named(
    tmp_path: Path, config: str, with_thread: bool
) -> None:
    async with open_arcade(tmp_path, config) as arcade:
        thread = {"threadId": await arcade.thread()} if with_thread else {}

        def params(uri: str, **more: Any) -> dict[str, Any]:
            return {**thread, "server": RESOURCES, "uri": uri, **more}

        async def read(asked: dict[str, Any]) -> str:
            answer = await arcade.client.call("mcpServer/resource/read", asked)
            text: str = answer["contents"][0]["text"]
            return text

        target = {"connectorId": "drive-id", "linkId": None}
        assert await read(params("ui://all")) == "all"
        assert await read(params("ui://drive", connectorId="drive-id")) == "drive"
        assert await read(params("ui://drive", target=target)) == "drive"
        assert await read(params("ui://drive", connectorId="drive-id", target=target)) == "drive"
        assert await read(params("ui://drive", server=DRIVE)) == "drive"
        assert await read(params("ui://plain", server="plain", connectorId="x")) == "plain"
        method = "mcpServer/resource/read"
        unknown = await arcade.client.refusal(method, params("ui://drive", connectorId="x"))
        assert (unknown.code, unknown.message, unknown.data) == (
            -32600,
            "app not found: x",
            {"code": "appNotFound", "connectorId": "x"},
        )
        both = await arcade.client.refusal(
            method, params("ui://drive", connectorId="gmail-id", target=target)
        )
        rule = "must be `connectorId`"
        assert (both.code, both.message, both.data) == (
            -32602,
            f"Invalid params: `target.connectorId` {rule}",
            {"code": "invalidParams", "field": "target.connectorId", "rule": rule},
        )


@claim("apps:b6")
async def test_without_a_thread_servers_of_apps_are_waited_for(tmp_path: Path) -> None:
    async with open_arcade(tmp_path, published=False) as arcade:

        async def publish() -> None:
            arcade.publish()

        arcade.apps.on_prepare = publish
        assert outline(await arcade.entries()) == FOLDED
        arcade.shelf.publish()
        params = {"server": DRIVE, "uri": "ui://drive"}
        answer = await arcade.client.call("mcpServer/resource/read", params)
        assert answer["contents"][0]["text"] == "drive"
        assert arcade.apps.asked == ["prepare", "prepare"]
        await arcade.client.call(
            "mcpServer/resource/read", {"server": "plain", "uri": "ui://plain"}
        )
        thread_id = await arcade.thread()
        await arcade.entries(threadId=thread_id)
        assert arcade.apps.asked == ["prepare", "prepare"]


async def test_a_configured_server_is_itself_whatever_its_name(tmp_path: Path) -> None:
    mine = WebPeer(resources={})
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(mine.serve())
        config = "".join(
            f'[mcp_servers.{name}]\nurl = "{mine.url}"\n' for name in (RESOURCES, GMAIL)
        )
        served = await stack.enter_async_context(serve(tmp_path, config=config))
        client = await stack.enter_async_context(served.client())
        answer = await client.call("mcpServerStatus/list", {})
        itself: tuple[dict[str, str], list[str]] = ({"look": "look"}, [])
        assert outline(answer["data"]) == {RESOURCES: itself, GMAIL: itself}
        wrong = '[apps_service]\nstatus_view = "x"\n'
        file = tmp_path / "config.toml"
        await let_stand(client, file)
        file.write_text(file.read_text() + wrong)
        # What was in force before stands in for a file that an edit has broken.
        answer = await client.call("mcpServerStatus/list", {})
        assert outline(answer["data"]) == {RESOURCES: itself, GMAIL: itself}
        await client.wait_for(
            "configWarning",
            lambda params: "expected `aggregate` or `split`" in (params["details"] or ""),
        )
    async with serve(tmp_path, config=config + wrong) as served, served.client() as client:
        refusal = await client.refusal("mcpServerStatus/list", {})
        assert refusal.code == -32600
        assert "unknown variant `x`, expected `aggregate` or `split`" in refusal.message


@claim("apps:t-58")
async def test_nobody_signs_in_to_a_server_of_apps(tmp_path: Path) -> None:
    async with open_arcade(tmp_path) as arcade:
        thread_id = await arcade.thread()
        asked = [peer.methods() for peer in arcade.peers.values()]
        for name in (RESOURCES, DRIVE, GMAIL):
            for params in ({"name": name}, {"name": name, "threadId": thread_id}):
                refusal = await arcade.client.refusal("mcpServer/oauth/login", params)
                assert (refusal.code, refusal.message) == (
                    -32600,
                    f"No MCP server named '{name}' found.",
                )
        assert [peer.methods() for peer in arcade.peers.values()] == asked
        assert arcade.apps.asked == []
