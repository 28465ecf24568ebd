"""MCP servers that another machine has behind a URL for itself."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.mcp.tunnel import open_dial
from app_server.mcp_wire.http import transport
from tests.support.harness import WAIT_S, WireError, claim, serve
from tests.support.host.elsewhere import add
from tests.support.host.exec_peer import exec_here
from tests.support.mcp_peers.calls import http_peer, settled
from tests.support.mcp_peers.certificates import certificate

TOOL = {"server": "raw", "tool": "look"}


def web(url: str) -> str:
    return f'[mcp_servers.raw]\nurl = "{url}"\nenvironment_id = "far"\n'


@claim("environment:http")
@pytest.mark.parametrize("json_response", [True, False], ids=["json", "events"])
async def test_a_server_that_another_machine_has_for_itself_is_called_through_it(
    tmp_path: Path, json_response: bool
) -> None:
    async with (
        http_peer(json_response=json_response) as (url, requests),
        serve(tmp_path, config=web(url)) as served,
        served.client() as client,
    ):
        async with exec_here() as (address, far):
            await add(client, address, "far")
            thread_id = await client.start_thread()
            assert await settled(client) == ("ready", None)
            assert far.running > 0
            call = {"threadId": thread_id, **TOOL, "arguments": {"size": 200_000}}
            answers = [await client.call("mcpServer/tool/call", call) for _ in range(2)]
            assert answers[0] == answers[1]
            port = int(address.rpartition(":")[2])
        # The server is still there, but the way to it is not.
        asked = len(requests)
        with pytest.raises(WireError) as failure:
            await client.call("mcpServer/tool/call", call)
        assert failure.value.message == f"cannot reach {url}: no connection"
        assert len(requests) == asked
        async with exec_here(port):
            assert await client.call("mcpServer/tool/call", call) == answers[0]


@claim("environment:http")
async def test_it_starts_when_its_environment_is_back(
    tmp_path: Path,
) -> None:
    async with (
        http_peer(json_response=True) as (url, _),
        serve(tmp_path, config=web(url)) as served,
        served.client() as client,
    ):
        served.services.mcp_pool.retry_waits_s = (0, 0)
        served.services.environments.retry_waits_s = (0.01, 0.05)
        async with exec_here() as (address, _far):
            pass
        await add(client, address, "far")
        await client.start_thread()
        status, error = await settled(client)
        assert status == "failed"
        assert "exec-server connection attempt failed" in str(error)
        async with exec_here(int(address.rpartition(":")[2])):
            assert await settled(client) == ("ready", None)


class Broken:
    """Processes whose connections take nothing more."""

    @asynccontextmanager
    async def open_connection(
        self, environment_id: str, host: str, port: int
    ) -> AsyncIterator[Any]:
        yield Deaf()


class Deaf:
    """A connection that has ended without a word."""

    def __init__(self) -> None:
        self.stdout = asyncio.StreamReader()

    def write(self, data: bytes) -> None:
        """Take nothing."""

    async def drain(self) -> None:
        raise ConnectionResetError


@claim("environment:http")
async def test_a_server_with_a_certificate_is_reached_by_name_if_that_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = certificate(tmp_path)
    trusted = ssl.create_default_context(cafile=str(file))

    async def trust() -> ssl.SSLContext:
        return trusted

    async with (
        http_peer(json_response=True, certificate=file) as (url, _),
        serve(tmp_path / "home", config=web(url)) as served,
        served.client() as client,
        exec_here() as (address, far),
    ):
        served.services.mcp_pool.retry_waits_s = (0, 0)
        await add(client, address, "far")
        thread_id = await client.start_thread()
        status, error = await settled(client)
        assert status == "failed"
        assert "certificate verify failed" in str(error)
        monkeypatch.setattr(transport, "trusted_certificates", trust)
        thread_id = await client.start_thread()
        assert await settled(client) == ("ready", None)
        assert far.running > 0
        call = {"threadId": thread_id, **TOOL, "arguments": {"size": 200_000}}
        for _ in range(2):
            assert "content" in await client.call("mcpServer/tool/call", call)


async def test_a_connection_that_breaks_ends_its_socket_and_no_other() -> None:
    processes: Any = Broken()
    async with open_dial(processes, "far") as dial:
        first, second = await dial("127.0.0.1", 80), await dial("127.0.0.1", 80)
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(first, b"x")
        with anyio.fail_after(WAIT_S):
            assert await loop.sock_recv(first, 1) == b""
        with pytest.raises(BlockingIOError):
            second.recv(1)
        first.close()
        second.close()
