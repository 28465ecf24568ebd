"""oauth: signing in to MCP servers that another machine reaches."""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx2
import pytest

from app_server.mcp.catalog.config import HttpTransport, OAuthSettings
from app_server.mcp.errors import OAuthFailed, OAuthUnavailable
from app_server.mcp.oauth import web
from app_server.mcp.oauth.credentials import CredentialStore, credential_key
from app_server.mcp.oauth.target import SignInTarget
from app_server.mcp.oauth.tokens import TokenSource
from tests.support.harness import WAIT_S, WireClient, claim, serve
from tests.support.host.elsewhere import add, machines, put
from tests.support.host.exec_conversations import listening
from tests.support.mcp_peers.calls import settled
from tests.support.mcp_peers.certificates import certificate
from tests.support.mcp_peers.oauth_peer import MARK, OAuthPeer
from tests.support.mcp_peers.sign_in import (
    SOON,
    auth_status,
    come_back,
    completed,
    keep,
    stored,
    table,
)

FAR = 'environment_id = "far"'


@pytest.fixture
def nothing_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no request of a sign-in leave this machine by itself."""

    async def refuse(transport: Any, request: httpx2.Request) -> httpx2.Response:
        raise AssertionError(f"{request.url} was asked from here")

    monkeypatch.setattr(web._ByTarget, "handle_async_request", refuse)


@asynccontextmanager
async def signing_in(home: Path) -> AsyncIterator[tuple[OAuthPeer, WireClient]]:
    """Serve with a peer that is reached from the environment `far` and wants a sign-in."""
    async with (
        OAuthPeer().serve() as peer,
        listening() as url,
        serve(home, config=table(peer, FAR)) as served,
        served.client() as client,
    ):
        await add(client, url, "far")
        yield peer, client


@claim("environment:sign-in")
@pytest.mark.usefixtures("nothing_here")
async def test_a_sign_in_goes_through_the_environment_and_the_browser_comes_back_here(
    tmp_path: Path,
) -> None:
    async with signing_in(tmp_path) as (peer, client):
        thread_id = await client.start_thread()
        assert await settled(client, "web") == (
            "failed",
            "The web MCP server is not logged in. Sign in with `mcpServer/oauth/login`.",
        )
        assert await auth_status(client, threadId=thread_id) == "notLoggedIn"
        answer = await client.call("mcpServer/oauth/login", {"name": "web"})
        assert (await come_back(peer, answer)).status == 200
        assert (await completed(client))["success"] is True
        assert await settled(client, "web") == ("ready", None)
        assert await auth_status(client, threadId=thread_id) == "oAuth"
        look = {"threadId": thread_id, "server": "web", "tool": "look"}
        assert (await client.call("mcpServer/tool/call", look))["content"][0]["text"] == "seen"
        [(key, entry)] = stored(tmp_path).items()
        assert key == credential_key("web", peer.url, "far") != credential_key("web", peer.url)
        assert (entry["environment_id"], entry["access_token"]) == ("far", f"access-{MARK}-2")


@claim("environment:sign-in")
async def test_a_token_of_the_same_address_here_is_not_sent_there(tmp_path: Path) -> None:
    async with OAuthPeer().serve() as peer:
        keep(tmp_path, peer, peer.give())
        async with (
            listening() as url,
            serve(tmp_path, config=table(peer, FAR)) as served,
            served.client() as client,
        ):
            await add(client, url, "far")
            thread_id = await client.start_thread()
            assert (await settled(client, "web"))[0] == "failed"
            assert await auth_status(client, threadId=thread_id) == "notLoggedIn"


@claim("environment:sign-in")
@pytest.mark.usefixtures("nothing_here")
async def test_a_token_is_renewed_through_the_environment(tmp_path: Path) -> None:
    async with OAuthPeer().serve() as peer, listening() as url, machines() as environments:
        put(environments, "far", url)
        keep(tmp_path, peer, peer.give(), environment_id="far", **SOON)
        http = HttpTransport(peer.url, oauth=OAuthSettings(home=tmp_path, store="file"))
        target = SignInTarget("web", http, "far", environments)
        store = CredentialStore(tmp_path, "file")
        renewed = await TokenSource(target, store, deque()).current()
        found = await anyio.to_thread.run_sync(target.load, store)
        assert found is not None
        assert renewed == found.access_token
        [form] = peer.posts("/as/token")
        assert form["grant_type"] == "refresh_token"


@claim("environment:sign-in")
async def test_a_sign_in_through_an_environment_that_is_away_or_unknown_fails(
    tmp_path: Path,
) -> None:
    async with (
        OAuthPeer().serve() as peer,
        serve(tmp_path, config=table(peer, FAR)) as served,
        served.client() as client,
    ):
        error = await client.refusal("mcpServer/oauth/login", {"name": "web"})
        assert error.message == ("failed to login to MCP server 'web': unknown environment `far`")
        async with listening() as url:
            pass
        await add(client, url, "far")
        error = await client.refusal("mcpServer/oauth/login", {"name": "web"})
        assert error.message == (
            f"failed to login to MCP server 'web': cannot reach {peer.url}: ConnectError"
        )
        assert error.data["code"] == "oauthLoginFailed"


@asynccontextmanager
async def opened(url: str, tmp_path: Path) -> AsyncIterator[web.Web]:
    """Open the network of an environment for a server."""
    async with listening() as there, machines() as environments:
        put(environments, "far", there)
        http = HttpTransport(url, oauth=OAuthSettings(home=tmp_path))
        async with web.open_web(SignInTarget("web", http, "far", environments)) as found:
            yield found


@asynccontextmanager
async def answering(*pieces: bytes, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Answer every request with these bytes, and leave the connection open; gives the port."""

    async def answer(reader: Any, writer: Any) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


HEAD = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"


@claim("environment:sign-in")
async def test_a_document_is_read_and_bounded(tmp_path: Path) -> None:
    large = b"HTTP/1.1 200 OK\r\ncontent-length: 300000\r\n\r\n" + bytes(300_000)
    async with (
        answering(HEAD, b"he", b"llo") as port,
        answering(large) as other,
        opened(f"http://127.0.0.1:{port}/mcp", tmp_path) as there,
    ):
        answer = await there.get(f"http://127.0.0.1:{port}/doc", {})
        assert (answer.status, answer.body) == (200, b"hello")
        with pytest.raises(OAuthFailed, match="larger than 262144 bytes"):
            await there.get(f"http://127.0.0.1:{other}/doc", {})


@claim("environment:sign-in")
@pytest.mark.parametrize("pieces", [(), (HEAD,)], ids=["no head", "no body"])
async def test_a_server_there_that_says_nothing_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: tuple[bytes, ...]
) -> None:
    monkeypatch.setattr("app_server.mcp.oauth.web.REQUEST_S", 0.3)
    with anyio.fail_after(WAIT_S):
        async with answering(*pieces) as port:
            url = f"http://127.0.0.1:{port}/mcp"
            async with opened(url, tmp_path) as there:
                with pytest.raises(OAuthUnavailable, match="ReadTimeout"):
                    await there.get(url, {})


@claim("environment:sign-in")
async def test_encryption_ends_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = await anyio.to_thread.run_sync(certificate, tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(file)

    async def trust() -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(file))

    async with answering(HEAD, b"hello", tls=tls) as port:
        url = f"https://localhost:{port}/mcp"
        async with opened(url, tmp_path) as there:
            with pytest.raises(OAuthUnavailable, match="ConnectError"):
                await there.get(url, {})
        monkeypatch.setattr(web, "trusted_certificates", trust)
        async with opened(url, tmp_path) as there:
            assert (await there.get(url, {})).body == b"hello"
