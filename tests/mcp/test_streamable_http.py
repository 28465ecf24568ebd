"""mcp: servers behind a URL."""

import os
from pathlib import Path

import httpx2
import pytest

from app_server.mcp_wire.http import remote, transport
from tests.support.harness import (
    claim,
    serve,
)
from tests.support.mcp_peers.calls import (
    call_items,
    http_peer,
    input_text,
    raw_call,
    steps_until_settled,
)


@claim("mcp:http")
@pytest.mark.parametrize("protocol", ["2025", "2026-07-28", "auto"])
@pytest.mark.parametrize("json_response", [True, False], ids=["json", "events"])
async def test_a_server_behind_a_url_is_called_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, json_response: bool, protocol: str
) -> None:
    monkeypatch.setattr(transport, "MAX_MESSAGE_BYTES", 100_000)
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("X_TEST", "from the environment")
    async with http_peer(json_response=json_response) as (url, requests):
        config = f'[mcp_servers.raw]\nurl = "{url}"\nprotocol = "{protocol}"\n'
        config += 'env_http_headers = { X-Test = "X_TEST" }\n'
        async with serve(tmp_path, config=config) as served, served.client() as client:
            thread_id = await client.start_thread()
            assert (await steps_until_settled(client, "raw"))["raw"][-1] == ("ready", None)
            items, outputs = await call_items(
                served,
                client,
                thread_id,
                raw_call("look"),
                raw_call("look", {"size": 200_000}),
                raw_call("look"),
            )
            assert [item["status"] for item in items] == ["completed", "failed", "completed"]
            assert outputs[0][1:] == [input_text("from the environment")]
            assert "Mcp error: " in items[1]["error"]["message"]
            status = await client.call("mcpServerStatus/list", {"threadId": thread_id})
            (entry,) = status["data"]
            assert (entry["httpOrigin"], entry["authStatus"]) == (
                url.removesuffix("/mcp"),
                "unsupported",
            )
        # Without a session there is nothing to end.
        assert requests.count("DELETE") == (1 if protocol == "2025" else 0)


@pytest.mark.parametrize(
    ("status", "error", "auth"),
    [
        (401, "The raw MCP server is not logged in. Run `codex mcp login raw`.", "unsupported"),
        (
            500,
            "MCP client for `raw` failed to start: MCP startup failed: HTTP status 500 from {url}",
            "unsupported",
        ),
        (
            404,
            "MCP client for `raw` failed to start: MCP startup failed: Not Found",
            "unsupported",
        ),
    ],
)
async def test_a_server_that_refuses_says_why(
    tmp_path: Path, status: int, error: str, auth: str
) -> None:
    async with http_peer(json_response=True, status=status) as (url, requests):
        config = f'[mcp_servers.raw]\nurl = "{url}"\n'
        async with serve(tmp_path, config=config) as served, served.client() as client:
            served.services.mcp_pool.retry_waits_s = (0, 0)
            thread_id = await client.start_thread()
            told = await steps_until_settled(client, "raw")
            assert told["raw"] == [("starting", None), ("failed", error.replace("{url}", url))]
            asked = {401: 1, 404: 2, 500: 6}[status]
            assert requests == ["POST"] * asked
            listed = await client.call("mcpServerStatus/list", {"threadId": thread_id})
            (entry,) = listed["data"]
            assert entry["authStatus"] == auth
            if status != 401:
                assert requests == ["POST"] * asked
            assert entry["runtimeStatus"] == (
                "authenticationRequired" if status == 401 else "failed"
            )


def test_an_ambient_proxy_is_for_other_machines(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HTTP_PROXY", "http://proxy:1")
    monkeypatch.setenv("NO_PROXY", "near.example")
    choose = remote.ambient_proxy
    assert choose(httpx2.URL("http://127.0.0.1:5/mcp")) is None
    assert choose(httpx2.URL("http://[::1]:5/mcp")) is None
    assert choose(httpx2.URL("http://near.example/mcp")) is None
    assert choose(httpx2.URL("http://far.example/mcp")) == "http://proxy:1"
    assert choose(httpx2.URL("http://10.0.0.1/mcp")) == "http://proxy:1"
