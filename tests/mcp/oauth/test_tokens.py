"""oauth: tokens of MCP servers, and renewing them."""

import logging
import sys
import time
from collections import deque
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

# Imported here so that no test waits for it.
import app_server.handlers.integrations.mcp
import app_server.mcp.oauth.authorization  # noqa: F401
from app_server.mcp.catalog.config import (
    HttpTransport,
    OAuthSettings,
)
from app_server.mcp.errors import NotLoggedIn, OAuthFailed, OAuthUnavailable
from app_server.mcp.oauth.credentials import CredentialStore
from app_server.mcp.oauth.target import SignInTarget
from app_server.mcp.oauth.tokens import TokenSource
from app_server.runtime.clock import SystemClock
from tests.support.harness import WAIT_S, claim, serve
from tests.support.mcp_peers.calls import settled
from tests.support.mcp_peers.oauth_peer import MARK, OAuthPeer
from tests.support.mcp_peers.sign_in import (
    SOON,
    auth_status,
    come_back,
    completed,
    fresh_server,
    keep,
    stored,
    table,
)
from tests.support.model import Gate


def token_source(home: Path, peer: OAuthPeer) -> TokenSource:
    transport = HttpTransport(peer.url, oauth=OAuthSettings(home=home, store="file"))
    return TokenSource(SignInTarget("web", transport), CredentialStore(home, "file"), deque())


@claim("oauth:refresh")
async def test_a_token_is_renewed_before_it_expires_and_after_a_401(tmp_path: Path) -> None:
    async with OAuthPeer().serve() as peer:
        first = peer.give()
        keep(tmp_path, peer, first, **SOON)
        config = table(peer)
        async with serve(tmp_path, config=config) as served, served.client() as client:
            thread_id = await client.start_thread()
            assert await settled(client, "web") == ("ready", None)
            assert peer.posts("/as/token") == [
                {
                    "grant_type": "refresh_token",
                    "refresh_token": first["refresh_token"],
                    "client_id": "client-1",
                    "resource": peer.url,
                }
            ]
            # Stored before it was used, and the old one never went out.
            (entry,) = stored(tmp_path).values()
            assert entry["access_token"] == f"access-{MARK}-2"
            assert set(peer.mcp_tokens) - {None} == {f"Bearer access-{MARK}-2"}
            peer.tokens.clear()
            call = {"threadId": thread_id, "server": "web", "tool": "look"}
            assert (await client.call("mcpServer/tool/call", call))["content"][0]["text"] == "seen"
            assert peer.mcp_tokens[-2:] == [f"Bearer access-{MARK}-2", f"Bearer access-{MARK}-3"]
            (entry,) = stored(tmp_path).values()
            assert entry["refresh_token"] == f"refresh-{MARK}-3"


@claim("oauth:refresh-refused")
async def test_a_refresh_that_is_refused_needs_a_new_sign_in(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with OAuthPeer().serve() as peer:
        kept = keep(tmp_path, peer, {"access_token": "old", "refresh_token": "spent"}, **SOON)
        async with serve(tmp_path, config=table(peer)) as served, served.client() as client:
            thread_id = await client.start_thread()
            message = await client.wait_for(
                "mcpServer/startupStatus/updated", lambda p: p["status"] == "failed"
            )
            assert message["params"]["failureReason"] == "reauthenticationRequired"
            assert await auth_status(client, threadId=thread_id) == "notLoggedIn"
            entry = stored(tmp_path)[kept.key]
            assert (entry["refresh_token"], entry["expires_at"]) == (None, 0)
            assert len(peer.posts("/as/token")) == 1
            assert MARK not in "\n".join(client.transcript) + caplog.text
            await come_back(peer, await client.call("mcpServer/oauth/login", {"name": "web"}))
            assert await settled(client, "web") == ("ready", None)


async def test_a_server_knows_whether_there_has_been_a_sign_in(tmp_path: Path) -> None:
    async with OAuthPeer().serve() as peer:
        for before in (False, True):
            if before:
                keep(tmp_path, peer, {"access_token": "old"})
            server = fresh_server(peer, tmp_path)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.run, str(tmp_path))
                with anyio.fail_after(WAIT_S):
                    await server.settled.wait()
                assert server.status == "authenticationRequired"
                assert isinstance(server.failure, NotLoggedIn)
                assert server.failure.again is before
                server.stop.set()


async def test_a_refresh_token_is_used_once_however_many_want_it(tmp_path: Path) -> None:
    async with OAuthPeer().serve() as peer:
        keep(tmp_path, peer, peer.give(), **SOON)
        sources = [token_source(tmp_path, peer) for _ in range(5)]
        found: list[str | None] = []

        async def ask(source: TokenSource) -> None:
            found.append(await source.current())

        async with anyio.create_task_group() as tasks:
            for source in sources:
                tasks.start_soon(ask, source)
        assert found == [f"access-{MARK}-2"] * 5
        assert len(peer.posts("/as/token")) == 1


async def test_a_token_that_holds_is_used_while_nobody_renews_it(tmp_path: Path) -> None:
    async with OAuthPeer().serve() as peer:
        soon = time.time_ns() // 1_000_000 + 20_000
        keep(tmp_path, peer, peer.give(), expires_at=soon)
        peer.token_status = 503
        assert await token_source(tmp_path, peer).current() == f"access-{MARK}-1"
        keep(tmp_path, peer, peer.give(), **SOON)
        with pytest.raises(OAuthUnavailable, match=r"^the request for a token was refused: HTTP 5"):
            await token_source(tmp_path, peer).current()
        # Nothing was lost by that.
        peer.token_status = None
        assert await token_source(tmp_path, peer).current() == f"access-{MARK}-3"


async def test_a_refresh_waits_for_its_lock_but_not_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Another process holds the lock, refreshes, and lets go.
    holder = (
        "import fcntl, sys; file = open(sys.argv[1], 'a'); fcntl.flock(file, fcntl.LOCK_EX);"
        "print('held', flush=True); sys.stdin.read()"
    )
    async with OAuthPeer().serve() as peer:
        kept = keep(tmp_path, peer, peer.give(), **SOON)
        lock = tmp_path / "locks" / f"credential-{kept.key.partition('|')[2]}.lock"
        async with await anyio.open_process([sys.executable, "-c", holder, str(lock)]) as process:
            assert process.stdout is not None
            assert process.stdin is not None
            with anyio.fail_after(WAIT_S):
                assert (await process.stdout.receive()).strip() == b"held"
            with monkeypatch.context() as hurried:
                hurried.setattr("app_server.mcp.oauth.tokens.REFRESH_S", 0.1)
                with pytest.raises(OAuthUnavailable, match="not refreshed in time"):
                    await token_source(tmp_path, peer).current()
            keep(tmp_path, peer, {"access_token": "theirs", "refresh_token": "r"})
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(process.stdin.aclose)
                source = token_source(tmp_path, peer)
                assert await source.replace(f"access-{MARK}-1") == "theirs"
            await process.wait()
        assert peer.posts("/as/token") == []


async def test_what_came_for_a_refresh_token_is_kept_though_nobody_waits(tmp_path: Path) -> None:
    async with OAuthPeer().serve() as peer:
        keep(tmp_path, peer, peer.give(), **SOON)
        peer.gates["/as/token"] = gate = Gate()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(token_source(tmp_path, peer).current)
            await gate.wait_until_reached()
            tasks.cancel_scope.cancel()
            gate.opened.set()
        (entry,) = stored(tmp_path).values()
        assert entry["refresh_token"] == f"refresh-{MARK}-2"


async def test_an_answer_to_a_refresh_is_not_waited_for_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.mcp.oauth.tokens.ANSWER_S", 0.05)
    async with OAuthPeer().serve() as peer:
        keep(tmp_path, peer, peer.give(), **SOON)
        peer.gates["/as/token"] = gate = Gate()
        with pytest.raises(OAuthUnavailable, match="not refreshed in time"):
            await token_source(tmp_path, peer).current()
        gate.opened.set()


async def test_a_refusal_that_may_pass_costs_no_sign_in(tmp_path: Path) -> None:
    async with OAuthPeer().serve() as peer:
        kept = keep(tmp_path, peer, peer.give(), **SOON)
        peer.token_status = 403
        with pytest.raises(OAuthFailed, match=r"HTTP 403 server_error$"):
            await token_source(tmp_path, peer).current()
        peer.token_status = None
        peer.documents.clear()
        with pytest.raises(OAuthFailed, match="no authorization server any more"):
            await token_source(tmp_path, peer).current()
        assert stored(tmp_path)[kept.key] == kept.render()


async def test_a_sign_in_while_the_server_is_connected_is_taken_up(tmp_path: Path) -> None:
    async with OAuthPeer().serve() as peer:
        keep(tmp_path, peer, peer.give())
        async with serve(tmp_path, config=table(peer)) as served, served.client() as client:
            thread_id = await client.start_thread()
            assert await settled(client, "web") == ("ready", None)
            call = {"threadId": thread_id, "server": "web", "tool": "look"}
            peer.tokens.clear()
            peer.refresh_tokens.clear()
            for _ in range(2):
                error = await client.refusal("mcpServer/tool/call", call)
                assert error.data == {"status": 401}
            assert len(peer.posts("/as/token")) == 1
            assert await auth_status(client, threadId=thread_id) == "notLoggedIn"
            await come_back(peer, await client.call("mcpServer/oauth/login", {"name": "web"}))
            await completed(client)
            assert (await client.call("mcpServer/tool/call", call))["content"][0]["text"] == "seen"


async def test_without_a_refresh_token_a_token_is_used_to_its_end(tmp_path: Path) -> None:
    async with OAuthPeer().serve() as peer:
        token = {"access_token": "a"}
        source = token_source(tmp_path, peer)
        assert (await source.current(), source.had_credential) == (None, False)
        keep(tmp_path, peer, token, expires_at=None)
        # A sign-in since then counts.
        assert await source.replace(None) == "a"
        assert (source.stored(), source.had_credential) == ("a", True)
        assert await source.replace("a") is None
        keep(tmp_path, peer, token, **SOON)
        assert await token_source(tmp_path, peer).current() is None
        keep(tmp_path, peer, token, expires_at=time.time_ns() // 1_000_000 + 20_000)
        assert await token_source(tmp_path, peer).current() == "a"
        # What another process has renewed is taken.
        keep(tmp_path, peer, {"access_token": "b"})
        assert await source.replace("a") == "b"
        (tmp_path / ".credentials.json").unlink()
        assert await source.replace("b") is None


async def test_a_token_is_not_shown_to_another_authorization_server(tmp_path: Path) -> None:
    async with OAuthPeer().serve() as peer:
        keep(tmp_path, peer, peer.give(), **SOON, issuer="https://other.example")
        assert await token_source(tmp_path, peer).current() is None
        assert peer.posts("/as/token") == []


@claim("oauth:own-header")
async def test_a_header_of_its_own_wins_over_a_stored_token(tmp_path: Path) -> None:
    async with OAuthPeer().serve() as peer:
        peer.tokens.add("configured")
        keep(tmp_path, peer, peer.give())
        config = table(peer, 'http_headers = { Authorization = "Bearer configured" }')
        async with serve(tmp_path, config=config) as served, served.client() as client:
            thread_id = await client.start_thread()
            assert await settled(client, "web") == ("ready", None)
            assert set(peer.mcp_tokens) == {"Bearer configured"}
            assert await auth_status(client, threadId=thread_id) == "bearerToken"


@claim("oauth:refresh")
@pytest.mark.parametrize("set_by_s", [7200, -7200])
async def test_a_clock_that_is_set_costs_a_token_and_no_sign_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, set_by_s: int
) -> None:
    ahead_ms, read = 0, SystemClock.now_ms
    monkeypatch.setattr(SystemClock, "now_ms", lambda clock: read(clock) + ahead_ms)
    async with OAuthPeer().serve() as peer:
        first = peer.give()
        keep(tmp_path, peer, first, expires_at=SystemClock().now_ms() + 3_600_000)
        source = token_source(tmp_path, peer)
        assert await source.current() == first["access_token"]
        ahead_ms = set_by_s * 1000
        # Set back, it seems good for longer than it is: the server refuses it.
        now = await source.current()
        assert (now == first["access_token"]) == (set_by_s < 0)
        if set_by_s < 0:
            now = await source.replace(now)
        assert now not in (None, first["access_token"])
        assert await source.current() == now
        ahead_ms = 0
        assert await source.current() is not None
        # What was renewed while the clock was behind seems to have expired since.
        assert len(peer.posts("/as/token")) == (2 if set_by_s < 0 else 1)
