"""rpc and transport: the handshake and opting in, over every transport."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from app_server.transport.address import (
    Address,
    StdioAddress,
    UnixAddress,
)
from protocol.contract.methods import METHODS
from tests.support.harness import WireClient, claim, serve
from tests.support.wire.conversations import LOOPBACK, stdio_pipes


@asynccontextmanager
async def connected(
    transport: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[WireClient]:
    """Give an uninitialized client of a server, over a transport."""
    if transport == "stdio":
        async with stdio_pipes(monkeypatch) as pipe, serve(home, listen=[StdioAddress()]):
            yield WireClient(pipe)
    else:
        address: Address = LOOPBACK if transport == "ws" else UnixAddress(home / "s" / "socket")
        async with serve(home, listen=[address]) as served, served.pipe() as pipe:
            yield WireClient(pipe)


@claim(
    "handshake:first", "handshake:once", "handshake:answer", "errors:unknown-method", "framing:echo"
)
@pytest.mark.parametrize("transport", ["ws", "unix", "stdio"])
async def test_the_handshake_over_every_transport(
    transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with connected(transport, tmp_path, monkeypatch) as client:
        early = await client.refusal("thread/list", {})
        assert (early.code, early.message) == (-32600, "Not initialized")
        assert early.data == {"code": "notInitialized"}
        nameless = await client.refusal("initialize", {"clientInfo": {"name": " ", "version": "1"}})
        assert (nameless.code, nameless.data["field"]) == (-32602, "clientInfo.name")
        result = await client.initialize("my-client")
        assert result["userAgent"].startswith("my-client/0.169.0 (")
        assert result["userAgent"].endswith("(my-client; 1)")
        assert result["codexHome"] == str(tmp_path)
        assert (result["platformFamily"], result["platformOs"]) == ("unix", "linux")
        again = await client.refusal("initialize", {"clientInfo": {"name": "x", "version": "1"}})
        assert (again.code, again.message) == (-32600, "Already initialized")
        unknown = await client.refusal("no/such", {})
        assert (unknown.code, unknown.message) == (-32601, "method not found: no/such")
        listed = await client.refusal("thread/loaded/list", [1])
        assert listed.code == -32602
        await client.send("nonsense")
        assert (await client.receive())["error"]["code"] == -32700
        await client.send('{"id":"last","method":"thread/loaded/list","params":{}}')
        assert await client.receive() == {"id": "last", "result": {"data": [], "nextCursor": None}}


async def test_a_client_that_sends_jsonrpc_is_sent_jsonrpc(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.pipe() as pipe:
        client = WireClient(pipe)
        params = {"clientInfo": {"name": "x", "version": "1"}}
        message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        await client.send(message)
        assert (await client.receive())["jsonrpc"] == "2.0"
        await client.send({"id": 2, "method": "thread/start", "params": {}})
        assert [(await client.receive()).get("jsonrpc") for _ in range(2)] == ["2.0", "2.0"]
        await client.send([{"id": 3, "method": "no/such"}])
        (answer,) = await client.receive()
        assert answer["jsonrpc"] == "2.0"
        assert answer["error"]["code"] == -32601


@claim("experimental:refused", "experimental:hidden")
async def test_a_stable_client_neither_uses_nor_sees_what_is_experimental(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client(experimental=False) as client:
        refused = await client.refusal("thread/start", {"dynamicTools": []})
        assert (refused.code, refused.message) == (
            -32600,
            "thread/start.dynamicTools requires experimentalApi capability",
        )
        assert refused.data == {
            "code": "experimentalApiRequired",
            "descriptor": "thread/start.dynamicTools",
        }
        result = await client.call("thread/start", {})
        started = await client.wait_for("thread/started")
        hidden = {"environments", "extra", "canAcceptDirectInput", "attachedToThreadId"}
        assert hidden.isdisjoint(result["thread"])
        assert hidden.isdisjoint(started["params"]["thread"])
        assert {"multiAgentMode", "activePermissionProfile"}.isdisjoint(result)
    async with serve(tmp_path) as served, served.client() as client:
        result = await client.call("thread/start", {})
        assert hidden <= result["thread"].keys()
        assert {"multiAgentMode", "activePermissionProfile"} <= result.keys()


@claim("experimental:refused")
async def test_an_experimental_method_needs_the_opt_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = METHODS["thread/loaded/list"]
    changed = {**METHODS, "thread/loaded/list": replace(spec, experimental=True)}
    monkeypatch.setattr("app_server.rpc.dispatch.METHODS", changed)
    async with serve(tmp_path) as served:
        async with served.client() as client:
            assert (await client.call("thread/loaded/list", {}))["data"] == []
        async with served.client(experimental=False) as client:
            refused = await client.refusal("thread/loaded/list", {})
            assert refused.data == {
                "code": "experimentalApiRequired",
                "descriptor": "thread/loaded/list",
            }


@claim("handshake:opt-out")
async def test_notifications_can_be_opted_out_by_exact_name(tmp_path: Path) -> None:
    names = ["thread/started", "no/such/name", "turn/*"]
    async with serve(tmp_path) as served, served.client(optOutNotificationMethods=names) as client:
        result = await client.call("thread/start", {})
        await client.request("turn/start", {"threadId": result["thread"]["id"], "input": []})
        messages = await client.until("turn/completed")
        heard = {message.get("method") for message in messages}
        assert "thread/started" not in heard
        assert {"turn/started", "thread/status/changed"} <= heard
