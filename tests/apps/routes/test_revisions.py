"""Local routes and clients of MCP 2026-07-28: the same tools and questions, without a session."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import anyio
import httpx2
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from protocol.model import JsonObject
from tests.support.apps.peer import Exchange, FakePool, Served, done, listed, serve_tools
from tests.support.harness import WAIT_S, claim
from tests.support.http_peer import NO_CERTIFICATES

NEW = "2026-07-28"
CAL, RESOURCES = "codex_apps__cal", "codex_apps"
TEXT: JsonObject = {"content": [{"type": "text", "text": "done"}]}


@asynccontextmanager
async def connected(
    served: Served, server: str = CAL, mode: Any = NEW, **options: Any
) -> AsyncIterator[Client]:
    bearer = served.generation.bearer(server).get_secret_value()
    async with httpx2.AsyncClient(
        verify=NO_CERTIFICATES,
        timeout=WAIT_S,
        trust_env=False,
        headers={"authorization": f"Bearer {bearer}"},
    ) as http:
        transport = streamable_http_client(served.generation.url(server), http_client=http)
        async with Client(transport, mode=mode, **options) as client:
            yield client


@claim("apps:revisions")
@pytest.mark.parametrize("mode", ["legacy", "auto", NEW])
async def test_a_client_of_each_revision_lists_and_calls(mode: Any) -> None:
    async with serve_tools([listed("look")]) as served, connected(served, mode=mode) as client:
        assert client.protocol_version == ("2025-11-25" if mode == "legacy" else NEW)
        # One who knows the revision beforehand does not ask.
        assert client.instructions == (None if mode == NEW else "Tools of the app Cal.")
        [tool] = (await client.list_tools()).tools
        result = await client.call_tool(tool.name, {})
        assert result.model_dump(include={"content", "is_error"}, exclude_none=True) == {
            "content": [{"type": "text", "text": "done"}],
            "is_error": False,
        }
        [exchange] = served.pool.exchanges
        envelope = [key for key in exchange.params["_meta"] if key.startswith("io.model")]
        assert (exchange.method, envelope) == ("tools/call", [])


@claim("apps:revisions")
@pytest.mark.parametrize("server", [CAL, RESOURCES])
async def test_questions_reach_a_client_without_a_session(server: str) -> None:
    said: list[Any] = []

    async def asks(exchange: Exchange) -> JsonObject:
        for message in ("0?", "1?"):
            schema: JsonObject = {"type": "object", "properties": {}}
            form: JsonObject = {"message": message, "requestedSchema": schema}
            said.extend([await exchange.peer.elicit(form)])
        return {"contents": []} if server == RESOURCES else TEXT

    async def answer(context: Any, params: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"of": params.message})

    async with (
        serve_tools([listed("look")], FakePool(asks)) as served,
        connected(served, server, elicitation_callback=answer) as client,
    ):
        if server == RESOURCES:
            await client.read_resource("a://b")
        else:
            await client.call_tool("look", {})
        assert [(one["action"], one["content"]) for one in said] == [
            ("accept", {"of": "0?"}),
            ("accept", {"of": "1?"}),
        ]
        # It took one call of the endpoint, in a session that ends with it.
        assert len(served.pool.exchanges) == 1
        assert (len(served.pool.closed), served.pool.sessions) == (1, set())


@claim("apps:revisions")
async def test_a_client_that_cannot_be_asked_cancels() -> None:
    said: list[Any] = []

    async def asks(exchange: Exchange) -> JsonObject:
        said.append(await exchange.peer.elicit({"message": "?", "requestedSchema": {}}))
        return TEXT

    async with (
        serve_tools([listed("look")], FakePool(asks)) as served,
        connected(served) as client,
    ):
        await client.call_tool("look", {})
    assert said == [{"action": "cancel"}]


@claim("apps:revisions")
async def test_progress_reaches_a_client_without_a_session() -> None:
    heard: list[Any] = []

    async def reports(exchange: Exchange) -> JsonObject:
        assert exchange.report is not None
        await exchange.report(1, 2, "half way")
        return TEXT

    async def note(progress: float, total: float | None, message: str | None) -> None:
        heard.append((progress, total, message))

    async with (
        serve_tools([listed("look")], FakePool(reports)) as served,
        connected(served) as client,
    ):
        await client.call_tool("look", {}, progress_callback=note)
    assert heard == [(1, 2, "half way")]


@claim("apps:revisions")
async def test_a_client_that_goes_away_cancels_its_call() -> None:
    reached, cancelled = anyio.Event(), anyio.Event()

    async def lingers(exchange: Exchange) -> JsonObject:
        reached.set()
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()
        return await done(exchange)

    async with (
        serve_tools([listed("look")], FakePool(lingers)) as served,
        connected(served) as client,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(client.call_tool, "look", {})
        with anyio.fail_after(WAIT_S):
            await reached.wait()
            tasks.cancel_scope.cancel()
    assert cancelled.is_set()


@claim("apps:revisions")
async def test_refusals_have_the_codes_of_the_revision() -> None:
    async with serve_tools([listed("look")]) as served, connected(served) as client:
        for refused, code in (
            (client.read_resource("a://b"), -32602),
            (client.call_tool("unknown", {}), -32602),
        ):
            with pytest.raises(MCPError) as caught:
                await refused
            assert caught.value.error.code == code
        other: dict[str, Any] = {"_meta": {"io.modelcontextprotocol/protocolVersion": "2031-01-01"}}
        other["_meta"]["io.modelcontextprotocol/clientCapabilities"] = {}
        bearer = served.generation.bearer(CAL).get_secret_value()
        headers = {
            "authorization": f"Bearer {bearer}",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2031-01-01",
            "mcp-method": "tools/list",
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": other}
        async with httpx2.AsyncClient(
            verify=NO_CERTIFICATES, timeout=WAIT_S, trust_env=False
        ) as http:
            answer = await http.post(served.generation.url(CAL), headers=headers, json=body)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32022)


MIRRORED: JsonObject = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "count": {"type": "integer", "x-mcp-header": "Count"},
        "free": {"type": "string"},
    },
}


async def posted(
    served: Served, name: str, arguments: JsonObject, headers: Mapping[str, str], version: str = NEW
) -> tuple[int, Any]:
    """Call a tool without a session; gives the status, and the error's code if there is one."""
    bearer = served.generation.bearer(CAL).get_secret_value()
    given = {
        "authorization": f"Bearer {bearer}",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": version,
        "mcp-method": "tools/call",
        "mcp-name": name,
        **headers,
    }
    meta = {
        "io.modelcontextprotocol/protocolVersion": NEW,
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    params = {"name": name, "arguments": arguments, "_meta": meta}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    async with httpx2.AsyncClient(verify=NO_CERTIFICATES, timeout=WAIT_S, trust_env=False) as http:
        answer = await http.post(served.generation.url(CAL), headers=given, json=body)
    found = answer.json()
    return answer.status_code, found["error"]["code"] if "error" in found else None


@claim("apps:revisions")
async def test_headers_that_contradict_the_body_are_refused() -> None:
    region, count = "mcp-param-region", "mcp-param-count"
    refused, taken = (400, -32020), (200, None)
    async with serve_tools([listed("look", inputSchema=MIRRORED), listed("plain")]) as served:
        for arguments, headers, expected in (
            ({}, {}, taken),
            ({"free": "x"}, {}, taken),
            ({"region": "eu", "count": 3}, {region: "eu", count: "3"}, taken),
            ({"region": "eu"}, {region: "=?base64?ZXU=?="}, taken),
            ({"count": 3}, {count: "3.0"}, taken),
            ({"region": None}, {}, taken),
            ({"region": "eu"}, {"mcp-param-other": "x", region: "eu"}, taken),
            ({"region": "eu"}, {}, refused),
            ({"region": "eu"}, {region: "us"}, refused),
            ({"region": "eu"}, {region: "EU"}, refused),
            ({"region": "eu"}, {region: "=?base64?dXM=?="}, refused),
            ({"region": "eu"}, {region: "=?base64?*?="}, refused),
            ({"count": 3}, {count: "4"}, refused),
            ({}, {region: "eu"}, refused),
            ({"region": None}, {region: "null"}, refused),
        ):
            assert (arguments, headers, await posted(served, "look", arguments, headers)) == (
                arguments,
                headers,
                expected,
            )
        assert await posted(served, "plain", {"region": "eu"}, {region: "us"}) == taken
        assert await posted(served, "unknown", {"region": "eu"}, {region: "us"}) == (400, -32602)
        for wrong in (
            {"mcp-method": "tools/list"},
            {"mcp-name": "plain"},
            {"mcp-name": "=?base64?cGxhaW4=?="},
            {"mcp-protocol-version": "2025-06-18"},
        ):
            status, code = await posted(served, "look", {}, wrong)
            assert (wrong, status) == (wrong, 400)
            assert "mcp-protocol-version" in wrong or code == -32020
        # What was refused never came to the endpoint.
        assert len(served.pool.exchanges) == 8


@claim("apps:revisions")
async def test_a_client_of_the_sdk_mirrors_what_a_tool_marks() -> None:
    async with serve_tools([listed("look", inputSchema=MIRRORED)]) as served:
        async with connected(served, mode="auto") as client:
            await client.list_tools()
            result = await client.call_tool("look", {"region": "\u00e9u", "count": 3})
            assert result.is_error is False
        [exchange] = served.pool.exchanges
        assert exchange.params["arguments"] == {"region": "\u00e9u", "count": 3}


@claim("apps:revisions")
@pytest.mark.parametrize("mode", ["legacy", NEW])
async def test_the_resources_have_no_tools(mode: Any) -> None:
    async with serve_tools([]) as served, connected(served, RESOURCES, mode) as client:
        if mode == "legacy":
            assert client.server_capabilities.tools is None
        with pytest.raises(MCPError) as caught:
            await client.list_tools()
        assert caught.value.error.code == -32601
