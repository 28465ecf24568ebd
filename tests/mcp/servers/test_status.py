"""mcp: the status of servers as clients list it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import (
    claim,
    serve,
    stdio_server,
)


@claim("mcp:event-streams")
async def test_event_streams_are_for_hosted_apps(tmp_path: Path) -> None:
    start: dict[str, Any] = {
        "threadId": "01900000-0000-7000-8000-000000000000",
        "server": "nobody",
        "subscriptionId": "s",
        "name": "changed",
        "arguments": {},
    }
    async with serve(tmp_path, config=stdio_server("raw")) as served, served.client() as client:
        answers = [
            await client.refusal("mcpServer/event/stream/start", start),
            await client.refusal(
                "mcpServer/event/stream/start",
                {**start, "threadId": await client.start_thread(), "server": "raw"},
            ),
        ]
        stopped = await client.call("mcpServer/event/stream/stop", {"subscriptionId": "s"})
    assert [(error.code, error.message, error.data) for error in answers] == [
        (
            -32600,
            "MCP event subscriptions are only supported for hosted apps",
            {"code": "eventStreamsNotSupported"},
        )
    ] * 2
    assert stopped == {}


async def test_a_url_that_makes_no_sense_keeps_no_other_server_from_the_list(
    tmp_path: Path,
) -> None:
    config = stdio_server("raw", enabled="false") + (
        '[mcp_servers.web]\nurl = "http://[web"\nenabled = false\n'
    )
    async with serve(tmp_path, config=config) as served, served.client() as client:
        listed = await client.call("mcpServerStatus/list", {})
    assert [(entry["name"], entry["httpOrigin"]) for entry in listed["data"]] == [
        ("raw", None),
        ("web", None),
    ]


@claim("status:list", "status:pages", "status:runtime")
async def test_status_shows_every_server_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "the-secret")
    config = (
        stdio_server("raw", enabled_tools='["meta"]')
        + stdio_server("off", enabled="false")
        + stdio_server("far", environment_id='"far"')
        + '[mcp_servers.bad]\ncommand = "/no/such"\n'
        + '[mcp_servers.web]\nurl = "http://127.0.0.1:1/mcp"\nbearer_token_env_var = "TOKEN"\n'
    )
    async with (
        serve(tmp_path, config=config) as served,
        served.client(experimental=False) as client,
    ):
        served.services.mcp_pool.retry_waits_s = (0, 0)
        nothing: dict[str, Any] = {
            "runtimeStatus": None,
            "pluginId": None,
            "httpOrigin": None,
            "serverInfo": None,
            "serverCapabilities": None,
            "toolListMeta": None,
            "tools": {},
            "toolsError": None,
            "resources": [],
            "resourceTemplates": [],
            "authStatus": "unsupported",
        }
        tool = {
            "name": "meta",
            "description": "Give back the metadata.",
            "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
            "annotations": {"readOnlyHint": True},
        }
        raw: dict[str, Any] = {
            **nothing,
            "name": "raw",
            "serverInfo": {
                "name": "peer",
                "title": None,
                "version": "1",
                "description": None,
                "icons": None,
                "websiteUrl": None,
            },
            "serverCapabilities": {"tools": {}, "resources": {}},
            "toolListMeta": {"list": 1},
            "tools": {"meta": tool},
            "resources": [{"uri": "mem://a", "name": "a"}],
            "resourceTemplates": [{"uriTemplate": "mem://{x}", "name": "x"}],
        }
        failure = "MCP startup failed: /no/such: No such file or directory (os error 2)"
        full = await client.call("mcpServerStatus/list", {})
        assert full == {
            "data": [
                {**nothing, "name": "bad", "toolsError": failure},
                {**nothing, "name": "far", "toolsError": "unknown environment `far`"},
                {**nothing, "name": "off"},
                raw,
                {
                    **nothing,
                    "name": "web",
                    "httpOrigin": "http://127.0.0.1:1",
                    "toolsError": "MCP startup failed: cannot reach http://127.0.0.1:1/mcp: "
                    "Connection refused",
                    "authStatus": "bearerToken",
                },
            ],
            "nextCursor": None,
        }
        assert "the-secret" not in json.dumps(full)
        quick = await client.call("mcpServerStatus/list", {"detail": "toolsAndAuthOnly"})
        assert quick["data"][3] == {**raw, "resources": [], "resourceTemplates": []}

        page = await client.call("mcpServerStatus/list", {"limit": 2})
        assert ([s["name"] for s in page["data"]], page["nextCursor"]) == (["bad", "far"], "2")
        page = await client.call("mcpServerStatus/list", {"limit": 0, "cursor": "4"})
        assert ([s["name"] for s in page["data"]], page["nextCursor"]) == (["web"], None)
        for cursor, message in (
            ("zzz", "invalid cursor: zzz"),
            ("-1", "invalid cursor: -1"),
            ("99", "cursor 99 exceeds total MCP servers 5"),
        ):
            error = await client.refusal("mcpServerStatus/list", {"cursor": cursor})
            assert (error.code, error.message) == (-32600, message)
        assert (await client.call("mcpServerStatus/list", {"serverName": "none"}))["data"] == []

        thread_id = await client.start_thread()
        of_thread = await client.call("mcpServerStatus/list", {"threadId": thread_id})
        assert {s["name"]: s["runtimeStatus"] for s in of_thread["data"]} == {
            "bad": "failed",
            "far": "disabled",
            "off": "disabled",
            "raw": "connected",
            "web": "failed",
        }
        one = await client.call(
            "mcpServerStatus/list", {"threadId": thread_id, "serverName": "raw"}
        )
        assert one["data"] == [{**raw, "runtimeStatus": "connected"}]


async def test_lists_that_fit_no_message_are_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.handlers.integrations.mcp.MAX_PAGE_BYTES", 1500)
    config = stdio_server("raw") + "".join(stdio_server(f"x{n}", enabled="false") for n in range(9))
    async with serve(tmp_path, config=config) as served, served.client() as client:
        first = await client.call("mcpServerStatus/list", {})
        entry, *others = first["data"]
        assert (entry["name"], entry["tools"]) == ("raw", {})
        assert entry["toolsError"] == "its lists are larger than 1500 bytes"
        assert 1 < len(first["data"]) < 9
        assert first["nextCursor"] == str(len(first["data"]))
        second = await client.call("mcpServerStatus/list", {"cursor": first["nextCursor"]})
        names = [entry["name"] for entry in (*others, *second["data"])]
        assert names == [f"x{n}" for n in range(len(names))]
        assert len(second["data"]) > 1
