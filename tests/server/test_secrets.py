"""Nothing secret leaves the server: secrets are planted everywhere, and all that leaves is read."""

import json
import logging
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app_server.cli.serve import quiet_libraries
from app_server.config.store_url import StoreUrl
from app_server.config.values import ConfigError
from app_server.server.app import AppServer
from app_server.server.settings import Settings
from tests.support.harness import WireClient, claim, serve, stdio_server
from tests.support.mcp_peers.calls import http_peer, raw_call
from tests.support.model import calls
from tests.support.wire.pipes import Pipe

SECRET = "s3cr3t"
"""Part of every planted value."""


def everything_on_disk(home: Path) -> Iterator[tuple[Path, bytes]]:
    for path in home.rglob("*"):
        if path.is_file() and path.name != "config.toml":
            yield path, path.read_bytes()


@claim("secrets:none-leave")
async def test_no_planted_secret_leaves_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    quiet_libraries()
    monkeypatch.setenv("PLANTED_TOKEN", f"token-{SECRET}")
    monkeypatch.setenv("PLANTED_HEADER", f"header-{SECRET}")
    async with http_peer(json_response=True, status=401) as (refusing, _):
        address = refusing.removeprefix("http://")
        web = f"""
            bearer_token_env_var = "PLANTED_TOKEN"
            http_headers = {{ X-Api-Key = "key-{SECRET}" }}
            env_http_headers = {{ X-Other = "PLANTED_HEADER" }}
        """
        printed = json.dumps({"X-Run": f"run-{SECRET}"})
        config = "\n".join(
            [
                stdio_server("raw", env=f'{{ API_KEY = "env-{SECRET}" }}'),
                stdio_server("dead", "die", env=f'{{ API_KEY = "env-{SECRET}" }}'),
                f'[mcp_servers.refusing]\nurl = "http://u:pw-{SECRET}@{address}?k={SECRET}"{web}',
                f'[mcp_servers.gone]\nurl = "http://u:{SECRET}@127.0.0.1:1/mcp?k={SECRET}"{web}',
                f'[mcp_servers.told]\nurl = "http://{address}"\n'
                f"http_headers_helper = {json.dumps(f'echo {shlex.quote(printed)}')}",
                f'[mcp_servers.broken]\nurl = "http://{address}"\n'
                f"http_headers_helper = 'echo {SECRET}; echo {SECRET} >&2; exit 1'",
                f'[mcp_servers.odd]\nurl = "ftp://u:{SECRET}@h/mcp?k={SECRET}"{web}',
            ]
        )
        async with serve(tmp_path, config=config) as served, served.client() as client:
            served.services.mcp_pool.retry_waits_s = (0, 0)
            transcripts = await use_everything(served, client)
    assert "raw" in transcripts
    assert SECRET not in transcripts
    # uvicorn is the MCP server's.
    logged = [r.getMessage() for r in caplog.records if not r.name.startswith("uvicorn")]
    assert SECRET not in "\n".join(logged)
    assert [
        path for path, content in everything_on_disk(tmp_path) if SECRET.encode() in content
    ] == []


@claim("secrets:database-password")
async def test_children_do_not_inherit_the_password_of_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[StoreUrl | None] = []

    async def open_stores(home: Path, store: StoreUrl | None, node: object) -> None:
        opened.append(store)
        raise ConfigError("the database is not there")

    monkeypatch.setattr("app_server.server.core.open_stores", open_stores)
    monkeypatch.setenv("PGPASSWORD", SECRET)
    url = StoreUrl.parse("postgresql://tests@127.0.0.1:1/threads")
    with pytest.raises(ConfigError, match="the database is not there"):
        await AppServer(Settings(tmp_path, [], store=url)).run(lambda urls: None)
    assert opened == [StoreUrl(f"{url.url}?password={SECRET}")]
    assert "PGPASSWORD" not in os.environ


class Listening:
    """A pipe that keeps what comes out of it."""

    def __init__(self, inner: Pipe) -> None:
        self._inner = inner
        self.heard: list[str] = []

    async def receive(self) -> str:
        text = await self._inner.receive()
        self.heard.append(text)
        return text

    async def send(self, text: str) -> None:
        await self._inner.send(text)

    async def aclose(self) -> None:
        await self._inner.aclose()


async def use_everything(served: Any, client: WireClient) -> str:
    """Call what could tell a secret, whether it works or not; gives all that the server said."""
    listening = client.pipe = Listening(client.pipe)
    thread_id = await client.start_thread()
    served.model.scripts.append(calls(raw_call("meta"), raw_call("fail"), raw_call("refuse")))
    await client.turn(thread_id, "go")
    scopes: list[dict[str, Any]] = [{}, {"threadId": thread_id}]
    for params in (*scopes, {"threadId": thread_id, "serverName": "gone"}):
        await client.call("mcpServerStatus/list", params)
    for server in ("raw", "dead", "refusing", "gone", "odd", "told", "broken", "nobody"):
        call = {"threadId": thread_id, "server": server}
        await client.answer(await client.request("mcpServer/tool/call", {**call, "tool": "x"}))
        uri = {"server": server, "uri": "mem://a"}
        await client.answer(await client.request("mcpServer/resource/read", uri))
    reads: list[tuple[str, Any]] = [
        ("config/read", {"includeLayers": True}),
        ("configRequirements/read", None),
        ("thread/read", {"threadId": thread_id, "includeTurns": True}),
        ("thread/resume", {"threadId": thread_id}),
        ("model/list", {}),
        ("account/read", {}),
    ]
    for method, params in reads:
        await client.call(method, params)
    bad = {"config": {"mcp_servers.raw.command": "x", "mcp_servers.raw.url": f"http://{SECRET}"}}
    refusal = await client.refusal("thread/start", bad)
    assert refusal.data["code"] == "configInvalid"
    return "".join(listening.heard)
