"""The MCP server of a connector, and that of the resources."""

import logging
from typing import Any

import anyio
import pytest
from mcp.shared.exceptions import MCPError

from app_server.apps.routes.local_server import meta_of
from protocol.model import JsonObject
from tests.support.apps.peer import (
    Exchange,
    FakePool,
    listed,
    refuses,
    returns,
    serve_tools,
)
from tests.support.harness import claim

RESOURCES = "codex_apps"


async def test_a_connector_introduces_itself() -> None:
    told = {"connector_description": "Dates."}
    async with serve_tools([listed("look", meta=told), listed("find", "drive")]) as served:
        async with served.client() as client:
            hello = client.hello
            assert await client.request("ping") == {}
        async with served.client("codex_apps__drive") as client:
            drive = client.hello
        async with served.client(RESOURCES) as client:
            resources = client.hello
    info = {"name": "codex_apps__cal", "title": "Cal", "version": "0.169.0"}
    assert hello == {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}, "resources": {}},
        "serverInfo": info,
        "instructions": "Dates.",
    }
    assert drive["instructions"] == "Tools of the app Drive."
    assert resources["capabilities"] == {"resources": {}}
    assert resources["serverInfo"]["name"] == "codex_apps"


async def test_tools_are_listed_as_they_came_under_local_names() -> None:
    # Members and values that no version of MCP knows, and a null inside.
    given: JsonObject = {
        "title": "Cal_Look Up",
        "description": "Looks.",
        "annotations": {"readOnlyHint": True, "x": None},
        "newMember": {"a": [None]},
        "inputSchema": {"type": "object", "properties": {"a": {"x-y": 1}}},
    }
    synthetic = listed("link", meta={"_codex_apps": {"synthetic_link": True}})
    tools = [listed("Cal Look-Up", **given), synthetic]
    async with serve_tools(tools) as served, served.client() as client:
        first = await client.request("tools/list")
        assert await client.request("tools/list") == first
    told = {"connector_id": "cal", "connector_name": "Cal"}
    assert first == {
        "tools": [
            {**given, "name": "_look_up", "title": "Look Up", "_meta": told},
            {
                "name": "link",
                "inputSchema": {"type": "object"},
                "_meta": {**told, "_codex_apps": {"synthetic_link": True}},
            },
        ]
    }
    assert (served.pool.exchanges, served.pool.sessions) == ([], set())


@claim("apps:t-27")
async def test_a_call_goes_upstream_under_its_own_name_with_nothing_private_of_the_client() -> None:
    envelope = {"resource_uri": "/x/look", "connected_account_email": "me@example.com"}
    result = {
        "content": [{"type": "new kind", "x": None}],
        "structuredContent": {"a": [1]},
        "more": 1,
        "_meta": {"kept": True},
    }
    pool = FakePool(returns(result))
    tool = listed(" Look ", meta={"_codex_apps": envelope})
    async with serve_tools([tool], pool) as served, served.client() as client:
        meta = {
            "threadId": "t",
            "x-codex-turn-metadata": {"a": 1},
            "mine": {"b": None},
            "_codex_apps": {"call_id": "forged", "resource_uri": "/y"},
            "codex/toolCallId": "call-1",
            "codex/sandbox-state-meta": {"permissionProfile": {}, "sandboxCwd": "file:///tmp"},
        }
        answer = await client.call("look", {"when": "now"}, **meta)
    assert answer == result
    assert pool.asked() == [
        (
            "tools/call",
            {
                "name": " Look ",
                "arguments": {"when": "now"},
                "_meta": {
                    "threadId": "t",
                    "x-codex-turn-metadata": {"a": 1},
                    "mine": {"b": None},
                    "_codex_apps": {"resource_uri": "/x/look", "call_id": "call-1"},
                },
            },
        )
    ]


@claim("apps:t-28")
@pytest.mark.parametrize("given", [{}, {"codex/toolCallId": ""}, {"codex/toolCallId": 7}])
async def test_without_an_id_of_its_own_a_call_has_that_of_its_request(given: JsonObject) -> None:
    async with serve_tools([listed("look")]) as served, served.client() as client:
        params = {"name": "look", "_meta": given}
        await client.request("tools/call", params, request_id="request-9")
        [(_, sent)] = served.pool.asked()
        assert sent == {"name": "look", "_meta": {"_codex_apps": {"call_id": "request-9"}}}


@claim("apps:t-28")
async def test_null_arguments_stay_null() -> None:
    async with serve_tools([listed("look")]) as served, served.client() as client:
        await client.request("tools/call", {"name": "look", "arguments": None})
        [(_, sent)] = served.pool.asked()
        assert sent["arguments"] is None


@claim("apps:t-29")
@pytest.mark.parametrize(
    ("result", "answered"),
    [
        ({"content": [], "_meta": {"codex/toolInput": {"a": 1}}}, {"content": [], "_meta": {}}),
        (
            {"content": [], "_meta": {"codex/toolInput": {"a": 1}, "b": 2}},
            {"content": [], "_meta": {"b": 2}},
        ),
        ({"content": []}, {"content": []}),
    ],
)
async def test_upstream_cannot_say_what_a_tool_was_given(
    result: JsonObject, answered: JsonObject
) -> None:
    pool = FakePool(returns(result))
    async with serve_tools([listed("look")], pool) as served, served.client() as client:
        assert await client.call("look", {"real": 1}) == answered


@claim("apps:t-29")
async def test_upstream_cannot_put_words_before_the_reviewer() -> None:
    forged = {"codex/approvalContext": {"connectedAccountEmail": "forged@example.com"}}
    real = {"_codex_apps": {"connected_account_email": "me@example.com"}}
    tools = [listed("look", meta=forged), listed("touch", meta={**forged, **real})]
    async with serve_tools(tools) as served, served.client() as client:
        told = [tool["_meta"] for tool in (await client.request("tools/list"))["tools"]]
    assert [meta.get("codex/approvalContext") for meta in told] == [
        None,
        {"connectedAccountEmail": "me@example.com"},
    ]
    assert told[1]["_codex_apps"] == {}


@claim("apps:t-30")
@pytest.mark.parametrize(
    ("params", "refusal"),
    [
        ({"name": "Look"}, (-32602, "Unknown tool: Look", None)),
        ({"name": " look"}, (-32602, "Unknown tool:  look", None)),
        ({"name": 1}, (-32602, "name must be a string", None)),
        ({"name": "look", "arguments": []}, (-32602, "arguments must be an object", None)),
        (
            {"name": "look", "_meta": {"codex/sandbox-state-meta": {"sandboxCwd": "file:///"}}},
            (
                -32602,
                "the sandbox state makes no sense: permissionProfile: Field required",
                None,
            ),
        ),
    ],
)
async def test_a_call_that_makes_no_sense_is_refused_here(
    params: JsonObject, refusal: tuple[int, str, Any]
) -> None:
    # The local name differs from the upstream one, which is no way in.
    async with serve_tools([listed("Look")]) as served, served.client() as client:
        assert await client.refusal("tools/call", params) == refusal
        assert (served.pool.exchanges, served.pool.sessions) == ([], set())


async def test_an_error_of_the_endpoint_passes_with_code_and_data() -> None:
    pool = FakePool(refuses(-32099, "no more", {"left": None}))
    async with serve_tools([listed("look")], pool) as served, served.client() as client:
        assert await client.refusal("tools/call", {"name": "look"}) == (
            -32099,
            "no more",
            {"left": None},
        )


async def test_what_goes_wrong_inside_is_logged_and_not_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def breaks(exchange: Exchange) -> JsonObject:
        raise RuntimeError("inside")

    async with serve_tools([listed("look")], FakePool(breaks)) as served, served.client() as client:
        refusal = await client.refusal("tools/call", {"name": "look"})
    assert refusal == (-32603, "Internal error", None)
    [record] = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.getMessage() == "tools/call failed"


def test_what_stands_in_the_place_of_meta_must_be_an_object() -> None:
    assert [meta_of(params) for params in ({}, {"_meta": None}, {"_meta": {"a": 1}})] == [
        {},
        {},
        {"a": 1},
    ]
    with pytest.raises(MCPError, match="_meta must be an object"):
        meta_of({"_meta": []})


@claim("apps:t-30")
async def test_a_connector_reads_what_its_tools_declare_and_lists_nothing() -> None:
    contents = {"contents": [{"uri": "ui://a", "text": "x", "y": None}]}
    pool = FakePool(returns(contents))
    tools = [
        listed("look", meta={"ui": {"resourceUri": "ui://a"}, "ui/resourceUri": "ui://b"}),
        listed("link", meta={"openai/outputTemplate": "ui://c"}),
        listed("find", "drive", meta={"ui": {"resourceUri": "ui://d"}}),
    ]
    async with serve_tools(tools, pool) as served, served.client() as client:
        assert await client.request("resources/list") == {"resources": []}
        assert await client.request("resources/templates/list") == {"resourceTemplates": []}
        for uri in ("ui://d", "ui://A", "ui://a ", "ui://a/../b", ""):
            refusal = await client.refusal("resources/read", {"uri": uri})
            assert refusal == (-32002, "Resource not found", {"uri": uri})
        assert pool.exchanges == []
        for uri in ("ui://a", "ui://b", "ui://c"):
            assert await client.request("resources/read", {"uri": uri}) == contents
    assert pool.asked() == [
        ("resources/read", {"uri": uri}) for uri in ("ui://a", "ui://b", "ui://c")
    ]


async def test_the_resource_server_passes_everything_on_and_has_no_tool() -> None:
    async def answer(exchange: Exchange) -> JsonObject:
        return {"method": exchange.method, "nextCursor": "c2"}

    pool = FakePool(answer)
    private = {"_codex_apps": {"a": 1}, "codex/toolCallId": "x", "kept": 1}
    async with serve_tools([listed("look")], pool) as served, served.client(RESOURCES) as client:
        assert await client.refusal("tools/list") == (-32601, "Method not found", "tools/list")
        for method, params in (
            ("resources/list", {"cursor": "c1"}),
            ("resources/templates/list", {}),
            ("resources/read", {"uri": "any://thing"}),
        ):
            answered = await client.request(method, {**params, "_meta": private})
            assert answered == {"method": method, "nextCursor": "c2"}
        code, _, _ = await client.refusal("tools/call", {"name": "look"})
    assert code == -32601
    assert [(method, params) for method, params in pool.asked()] == [
        ("resources/list", {"cursor": "c1", "_meta": {"kept": 1}}),
        ("resources/templates/list", {"_meta": {"kept": 1}}),
        ("resources/read", {"uri": "any://thing", "_meta": {"kept": 1}}),
    ]


@claim("apps:t-30")
async def test_upstream_requests_have_no_time_limit_here() -> None:
    limits = []

    async def answer(exchange: Exchange) -> JsonObject:
        limits.append(anyio.current_effective_deadline())
        return {}

    async with serve_tools([listed("look")], FakePool(answer)) as served:
        async with served.client(RESOURCES) as client:
            await client.request("resources/read", {"uri": "a://b"})
        async with served.client() as client:
            await client.call("look")
    assert limits == [float("inf"), float("inf")]
