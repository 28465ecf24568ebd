"""oauth: signing in to MCP servers behind a URL, and keeping their tokens."""

import fcntl
import hashlib
import importlib.machinery
import json
import logging
import stat
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from http.client import HTTPConnection
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import urlencode, urlsplit

import anyio
import anyio.to_thread
import httpx2
import pytest

# Imported here so that no test waits for it.
import app_server.handlers.mcp.oauth
import app_server.mcp.oauth.probing  # noqa: F401
from app_server.config.values import Config, ConfigError
from app_server.mcp.auth_status import AuthProbe
from app_server.mcp.catalog.config import (
    HttpTransport,
    OAuthSettings,
    ServerConfig,
    read_mcp_settings,
)
from app_server.mcp.errors import NotLoggedIn, OAuthFailed, OAuthUnavailable
from app_server.mcp.loading import load_sdk
from app_server.mcp.oauth.credentials import Credential, CredentialStore, credential_key
from app_server.mcp.oauth.discovery import discover
from app_server.mcp.oauth.tokens import TokenSource
from app_server.mcp.oauth.web import Web, open_web
from app_server.mcp.server import McpServer
from app_server.mcp.tools.listing import Listing
from tests.support.harness import WAIT_S, Gate, Served, WireClient, claim, serve
from tests.support.no_processes import NoProcesses
from tests.support.oauth_peer import MARK, PRM, OAuthPeer, query_of


def table(peer: OAuthPeer, *lines: str, name: str = "web") -> str:
    return "\n".join([f"[mcp_servers.{name}]", f'url = "{peer.url}"', *lines]) + "\n"


@asynccontextmanager
async def signing_in(
    home: Path, *lines: str, name: str = "web", top: str = ""
) -> AsyncIterator[tuple[OAuthPeer, Served, WireClient]]:
    """Run a peer that wants a sign-in, a server that has it configured, and a client."""
    async with OAuthPeer().serve() as peer:
        config = f"{top}\n{table(peer, *lines, name=name)}"
        async with serve(home, config=config) as served, served.client() as client:
            yield peer, served, client


@dataclass
class Page:
    """What the browser shows."""

    status: int
    headers: Mapping[str, str]
    text: str


async def visit(url: str, method: str = "GET", **query: str) -> Page:
    """Be the browser, without a log of what it does."""
    parts = urlsplit(url)

    def ask() -> Page:
        connection = HTTPConnection(parts.netloc, timeout=WAIT_S)
        with closing(connection):
            connection.request(method, f"{parts.path}?{urlencode(query)}")
            response = connection.getresponse()
            return Page(response.status, dict(response.headers.items()), response.read().decode())

    return await anyio.to_thread.run_sync(ask)


async def come_back(peer: OAuthPeer, answer: Any) -> Page:
    """Agree at the authorization server, and be sent back."""
    query = query_of(answer["authorizationUrl"])
    return await visit(query["redirect_uri"], code=peer.agree(query), state=query["state"])


async def completed(client: WireClient) -> Any:
    return (await client.wait_for("mcpServer/oauthLogin/completed"))["params"]


async def settled(client: WireClient, name: str = "web") -> tuple[str, str | None]:
    message = await client.wait_for(
        "mcpServer/startupStatus/updated",
        lambda p: p["name"] == name and p["status"] != "starting",
    )
    return message["params"]["status"], message["params"]["error"]


async def auth_status(client: WireClient, **params: Any) -> str:
    wanted = {"detail": "toolsAndAuthOnly", **params}
    (entry,) = (await client.call("mcpServerStatus/list", wanted))["data"]
    return str(entry["authStatus"])


def keep(home: Path, peer: OAuthPeer, tokens: dict[str, Any], **more: Any) -> Credential:
    """Store a credential as a sign-in would have."""
    values: dict[str, Any] = {
        "server_name": "web",
        "server_url": peer.url,
        "issuer": peer.issuer,
        "client_id": "client-1",
        "access_token": tokens["access_token"],
        "refresh_token": tokens.get("refresh_token"),
        "expires_at": time.time_ns() // 1_000_000 + 3_600_000,
        **more,
    }
    credential = Credential(**values)
    CredentialStore(home, "file").save(credential)
    return credential


def stored(home: Path) -> Any:
    return json.loads((home / ".credentials.json").read_text())


# Signing in.


@claim("oauth:login", "oauth:ready", "oauth:store", "oauth:status", "oauth:secrets")
async def test_a_sign_in_makes_the_server_ready_and_no_secret_leaves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with signing_in(tmp_path) as (peer, served, client):
        thread_id = await client.start_thread()
        assert await settled(client) == (
            "failed",
            "The web MCP server is not logged in. Run `codex mcp login web`.",
        )
        assert await auth_status(client, threadId=thread_id) == "notLoggedIn"
        answer = await client.call("mcpServer/oauth/login", {"name": "web"})
        query = query_of(answer["authorizationUrl"])
        redirect = query["redirect_uri"]
        assert answer["authorizationUrl"].startswith(f"{peer.issuer}/authorize?")
        assert redirect.startswith("http://127.0.0.1:")
        assert "/callback/" in redirect
        assert query == {
            "response_type": "code",
            "client_id": "client-1",
            "redirect_uri": redirect,
            "state": query["state"],
            "code_challenge": query["code_challenge"],
            "code_challenge_method": "S256",
            "resource": peer.url,
            "scope": "a b",
        }
        assert peer.posts("/as/register") == [
            {
                "client_name": "app-server",
                "redirect_uris": [redirect],
                "grant_types": ["authorization_code", "refresh_token"],
                "response_types": ["code"],
                "token_endpoint_auth_method": "none",
                "application_type": "native",
                "scope": "a b",
            }
        ]
        page = await come_back(peer, answer)
        assert page.status == 200
        assert "The sign-in has been received." in page.text
        assert page.headers["cache-control"] == "no-store"
        assert await completed(client) == {
            "name": "web",
            "threadId": None,
            "loginId": answer["loginId"],
            "success": True,
        }
        assert await settled(client) == ("ready", None)
        assert await auth_status(client, threadId=thread_id) == "oAuth"
        called = await client.call(
            "mcpServer/tool/call", {"threadId": thread_id, "server": "web", "tool": "look"}
        )
        assert called["content"][0]["text"] == "seen"
        (form,) = peer.posts("/as/token")
        assert form == {
            "grant_type": "authorization_code",
            "code": f"code-{MARK}-1",
            "redirect_uri": redirect,
            "code_verifier": form["code_verifier"],
            "client_id": "client-1",
            "resource": peer.url,
        }
        place = f'{{"type":"http","url":"{peer.url}","headers":{{}}}}'
        key = f"web|{hashlib.sha256(place.encode()).hexdigest()[:16]}"
        (entry,) = stored(tmp_path).values()
        assert stored(tmp_path) == {
            key: {
                "server_name": "web",
                "server_url": peer.url,
                "issuer": peer.issuer,
                "client_id": "client-1",
                "access_token": f"access-{MARK}-2",
                "expires_at": entry["expires_at"],
                "refresh_token": f"refresh-{MARK}-2",
                "scopes": ["a", "b"],
            }
        }
        assert 3_500_000 < entry["expires_at"] - time.time() * 1000 <= 3_600_000
        assert stat.S_IMODE((tmp_path / ".credentials.json").stat().st_mode) == 0o600
        await client.turn(thread_id, "hi")
        # Nothing that leaves has a secret in it.
        leaving = "\n".join([*client.transcript, caplog.text, json.dumps(served.model.requests)])
        for path in tmp_path.rglob("*.jsonl"):
            leaving += path.read_text()
        assert MARK not in leaving
        assert form["code_verifier"] not in leaving
        with pytest.raises(ConnectionRefusedError):
            await visit(redirect)


@claim("oauth:errors")
async def test_what_cannot_be_signed_in_to_is_refused(tmp_path: Path) -> None:
    peer_config = "\n[mcp_servers.child]\ncommand = 'true'\nenabled = false\n"
    async with OAuthPeer().serve() as peer:
        config = table(peer) + peer_config + table(peer, 'auth = "chatgpt"', name="other")
        async with serve(tmp_path, config=config) as served, served.client() as client:

            async def refusal(**params: Any) -> tuple[int, str]:
                error = await client.refusal("mcpServer/oauth/login", params)
                return error.code, error.message

            assert await refusal(name="zzz") == (-32600, "No MCP server named 'zzz' found.")
            assert await refusal(name="child") == (
                -32600,
                "OAuth login is only supported for streamable HTTP servers.",
            )
            assert await refusal(name="other") == (
                -32600,
                "MCP server 'other' does not sign in with OAuth.",
            )
            failed = "failed to login to MCP server 'web': "
            assert await refusal(name="web", clientRegistration="cimd") == (
                -32603,
                f"{failed}there is no client metadata document to register with",
            )
            thread_id = await client.start_thread()
            assert await refusal(name="zzz", threadId=thread_id) == (
                -32600,
                "No MCP server named 'zzz' found.",
            )
            assert (await refusal(name="web", threadId="00000000-0000-7000-8000-000000000000"))[
                0
            ] == -32600
            del peer.documents["/.well-known/oauth-authorization-server/as"]
            assert await refusal(name="web") == (
                -32603,
                f"{failed}the server has no OAuth metadata",
            )
            peer.publish()
            peer.registration = {"client_id": "", "client_secret": MARK}
            assert await refusal(name="web") == (
                -32603,
                f"{failed}the registration cannot be used",
            )
            peer.register_status = 403
            assert await refusal(name="web") == (
                -32603,
                f"{failed}registration was refused: HTTP 403",
            )
            peer.documents["/.well-known/oauth-authorization-server/as"] = peer.metadata(
                registration_endpoint=None
            )
            assert await refusal(name="web") == (
                -32603,
                f"{failed}the authorization server does not register clients; "
                "configure `oauth.client_id`",
            )


@claim("oauth:timeout")
async def test_a_browser_that_never_comes_back_ends_the_sign_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.mcp.oauth.login.MIN_TIMEOUT_S", 0.01)
    async with signing_in(tmp_path) as (_, _, client):
        answer = await client.call("mcpServer/oauth/login", {"name": "web", "timeoutSecs": -1})
        assert await completed(client) == {
            "name": "web",
            "threadId": None,
            "loginId": answer["loginId"],
            "success": False,
            "error": "timed out waiting for OAuth callback",
        }
        assert not (tmp_path / ".credentials.json").exists()


@claim("oauth:one-at-a-time")
async def test_the_older_of_two_sign_ins_ends(tmp_path: Path) -> None:
    async with signing_in(tmp_path) as (peer, _, client):
        thread_id = await client.start_thread()
        await settled(client)
        first = await client.call("mcpServer/oauth/login", {"name": "web"})
        second = await client.call("mcpServer/oauth/login", {"name": "web", "threadId": thread_id})
        assert await completed(client) == {
            "name": "web",
            "threadId": None,
            "loginId": first["loginId"],
            "success": False,
            "error": "another sign-in to this server took its place",
        }
        with pytest.raises(ConnectionRefusedError):
            await come_back(peer, first)
        await come_back(peer, second)
        assert await completed(client) == {
            "name": "web",
            "threadId": thread_id,
            "loginId": second["loginId"],
            "success": True,
        }


@claim("oauth:callback")
async def test_only_the_answer_to_this_sign_in_counts(tmp_path: Path) -> None:
    async with signing_in(tmp_path) as (_, _, client):
        answer = await client.call("mcpServer/oauth/login", {"name": "web"})
        query = query_of(answer["authorizationUrl"])
        url = query["redirect_uri"]
        assert (await visit(url.rpartition("/")[0])).status == 404
        assert (await visit(url, code="x", state="y")).status == 400
        assert (await visit(url, "POST")).status == 405
        host, port = url.split("/")[2].split(":")
        async with await anyio.connect_tcp(host, int(port)) as stream:
            await stream.send(b"nonsense")
            await stream.send_eof()
            assert (await stream.receive()).startswith(b"HTTP/1.1 404 ")
        async with await anyio.connect_tcp(host, int(port)) as stream:
            await stream.send(b"GET http://[ HTTP/1.1\r\n\r\n")
            with pytest.raises(anyio.EndOfStream):
                await stream.receive()
        page = await visit(url, error="access_denied", state=query["state"])
        assert "The sign-in was refused." in page.text
        end = await completed(client)
        assert (end["success"], end["error"]) == (
            False,
            "the authorization server refused the sign-in: access_denied",
        )
        answer = await client.call("mcpServer/oauth/login", {"name": "web"})
        query = query_of(answer["authorizationUrl"])
        await visit(query["redirect_uri"], code="c", state=query["state"], iss="http://evil")
        end = await completed(client)
        assert end["error"] == "the answer came from another authorization server"


async def test_a_code_that_is_refused_ends_the_sign_in_without_its_words(tmp_path: Path) -> None:
    async with signing_in(tmp_path) as (_, _, client):
        answer = await client.call("mcpServer/oauth/login", {"name": "web"})
        query = query_of(answer["authorizationUrl"])
        await visit(query["redirect_uri"], code=f"wrong-{MARK}", state=query["state"])
        end = await completed(client)
        assert end["error"] == "the request for a token was refused: HTTP 400 invalid_grant"


async def test_a_sign_in_that_breaks_says_no_more_than_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: Any) -> None:
        raise LookupError(MARK)

    async with signing_in(tmp_path) as (peer, _, client):
        answer = await client.call("mcpServer/oauth/login", {"name": "web"})
        with monkeypatch.context() as patched:
            patched.setattr(CredentialStore, "save", broken)
            await come_back(peer, answer)
            assert (await completed(client))["error"] == "the sign-in broke"
            patched.setattr("app_server.mcp.oauth.login.discover", broken)
            error = await client.refusal("mcpServer/oauth/login", {"name": "web"})
            assert error.message == "failed to login to MCP server 'web': the sign-in broke"
            patched.setattr("app_server.handlers.mcp.oauth.MAX_LOGINS", 0)
            assert (await client.refusal("mcpServer/oauth/login", {"name": "web"})).code == -32001
        (tmp_path / ".credentials.json").write_text("mine")
        await come_back(peer, await client.call("mcpServer/oauth/login", {"name": "web"}))
        end = await completed(client)
        assert end["error"].endswith(
            ".credentials.json: not a JSON object of at most 4194304 bytes"
        )
        assert (tmp_path / ".credentials.json").read_text() == "mine"
    assert MARK not in caplog.text


async def test_a_sign_in_that_is_overtaken_before_its_address_is_known_fails(
    tmp_path: Path,
) -> None:
    async with signing_in(tmp_path) as (peer, served, client), served.client() as other:
        peer.gates["/as/register"] = gate = Gate()
        first = await client.request("mcpServer/oauth/login", {"name": "web"})
        await gate.wait_until_reached()
        await other.call("mcpServer/oauth/login", {"name": "web"})
        error = (await client.answer(first))["error"]
        assert error["message"] == (
            "failed to login to MCP server 'web': another sign-in to this server took its place"
        )
        gate.opened.set()


@claim("oauth:configured")
async def test_a_client_that_is_registered_already_is_used(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    async with signing_in(
        tmp_path,
        'oauth_resource = "https://tools.example/"',
        'scopes = ["configured"]',
        f'oauth = {{ client_id = "mine", callback_port = {unused_tcp_port} }}',
    ) as (peer, _, client):
        answer = await client.call("mcpServer/oauth/login", {"name": "web"})
        query = query_of(answer["authorizationUrl"])
        redirect = f"http://127.0.0.1:{unused_tcp_port}/callback"
        chosen = ("client_id", "redirect_uri", "scope", "resource")
        assert [query[key] for key in chosen] == [
            "mine",
            redirect,
            "configured",
            "https://tools.example/",
        ]
        assert peer.posts("/as/register") == []
        answer = await client.call("mcpServer/oauth/login", {"name": "web", "scopes": ["asked"]})
        assert query_of(answer["authorizationUrl"])["scope"] == "asked"
        assert (await completed(client))["success"] is False
        await come_back(peer, answer)
        assert (await completed(client))["success"] is True
        (entry,) = stored(tmp_path).values()
        assert (entry["client_id"], entry["scopes"]) == ("mine", ["asked"])
        async with await anyio.create_tcp_listener(
            local_host="127.0.0.1", local_port=unused_tcp_port
        ):
            error = await client.refusal("mcpServer/oauth/login", {"name": "web"})
        assert f"cannot listen on port {unused_tcp_port}: " in error.message


async def test_a_secret_that_came_with_the_registration_is_used(tmp_path: Path) -> None:
    for method in ("client_secret_basic", "client_secret_post"):
        home = tmp_path / method
        async with signing_in(home) as (peer, _, client):
            secret = f"secret-{MARK}"
            peer.registration = {"client_secret": secret, "token_endpoint_auth_method": method}
            await come_back(peer, await client.call("mcpServer/oauth/login", {"name": "web"}))
            assert (await completed(client))["success"] is True
            (form,) = peer.posts("/as/token")
            sent = peer.headers[-1].get("authorization")
            if method == "client_secret_post":
                assert (form["client_secret"], sent) == (secret, None)
            else:
                assert "client_secret" not in form
                assert httpx2.BasicAuth("client-1", secret)._auth_header == sent
            (entry,) = stored(home).values()
            assert (entry["client_secret"], entry["client_auth_method"]) == (secret, method)
            loaded = CredentialStore(home, "file").load("web", peer.url)
            assert loaded is not None
            assert (loaded.client_secret, loaded.client_auth_method) == (secret, method)


# Tokens.


def token_source(home: Path, peer: OAuthPeer) -> TokenSource:
    transport = HttpTransport(peer.url, oauth=OAuthSettings(home=home, store="file"))
    return TokenSource("web", transport, CredentialStore(home, "file"))


SOON = {"expires_at": 1}


@claim("oauth:refresh")
async def test_a_token_is_renewed_before_it_expires_and_after_a_401(tmp_path: Path) -> None:
    async with OAuthPeer().serve() as peer:
        first = peer.give()
        keep(tmp_path, peer, first, **SOON)
        config = table(peer)
        async with serve(tmp_path, config=config) as served, served.client() as client:
            thread_id = await client.start_thread()
            assert await settled(client) == ("ready", None)
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
            assert await settled(client) == ("ready", None)


async def test_a_server_knows_whether_there_has_been_a_sign_in(tmp_path: Path) -> None:
    async with OAuthPeer().serve() as peer:
        for before in (False, True):
            if before:
                keep(tmp_path, peer, {"access_token": "old"})
            server = fresh_server(peer, tmp_path)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.run, load_sdk, str(tmp_path))
                with anyio.fail_after(WAIT_S):
                    await server.settled.wait()
                assert server.status == "authenticationRequired"
                assert server.reauthentication_required is before
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
    monkeypatch.setattr("app_server.mcp.oauth.tokens.HEAR_OUT_S", 0.05)
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
            assert await settled(client) == ("ready", None)
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
            assert await settled(client) == ("ready", None)
            assert set(peer.mcp_tokens) == {"Bearer configured"}
            assert await auth_status(client, threadId=thread_id) == "bearerToken"


# Stores.


@claim("oauth:store-kept")
def test_what_the_file_holds_besides_stays(tmp_path: Path) -> None:
    url = "http://127.0.0.1:1/mcp"
    key = credential_key("web", url)
    before = {"other|0": {"anything": [1]}, key: {"more": True, "access_token": 5}, "odd": 1}
    file = tmp_path / ".credentials.json"
    file.write_text(json.dumps(before))
    store = CredentialStore(tmp_path, "auto")
    assert store.load("web", url) is None
    credential = Credential("web", url, "https://i", "c", "a", 7, "r", ("s",))
    store.save(credential)
    assert stored(tmp_path) == {**before, key: {"more": True, **credential.render()}}
    assert store.load("web", url) == credential
    with_secret = replace(credential, client_secret="s", client_auth_method="client_secret_post")
    store.save(with_secret)
    assert store.load("web", url) == with_secret
    store.save(credential)
    assert store.load("web", url) == credential
    assert sorted(path.name for path in tmp_path.iterdir()) == [".credentials.json", "locks"]
    assert MARK not in repr(Credential("web", url, "i", "c", MARK, 7, MARK, (), MARK))
    for content in ("[]", "{", "{" + " " * 5_000_000 + "}"):
        file.write_text(content)
        with pytest.raises(OAuthFailed, match="not a JSON object"):
            store.save(credential)
        assert file.read_text() == content


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    credential = Credential("web", "u", "i", "c", "a")
    home = tmp_path / "home"
    home.write_text("a file")
    with pytest.raises(OAuthFailed, match="Not a directory"):
        CredentialStore(home, "file").save(credential)
    (tmp_path / ".credentials.json").mkdir()
    with pytest.raises(OAuthFailed, match="Is a directory"):
        CredentialStore(tmp_path, "file").load("web", "u")


def test_a_write_does_not_wait_for_another_process_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.mcp.oauth.credentials.LOCK_WAIT_S", 0)
    store = CredentialStore(tmp_path, "file")
    first, second = (Credential("web", "u", "i", "c", token) for token in ("a", "b"))
    store.save(first)
    lock = tmp_path / "locks" / "credentials.lock"
    with lock.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(OAuthFailed, match=f"^{lock}: another process has held it for 0 s$"):
            store.save(second)
    assert store.load("web", "u") == first
    store.save(second)
    assert store.load("web", "u") == second


class FakeKeyring(ModuleType):
    """A keyring that keeps passwords in a dictionary, or is broken."""

    def __init__(self) -> None:
        super().__init__("keyring")
        self.kept: dict[tuple[str, str], str] = {}
        self.broken = False

    def get_keyring(self) -> "FakeKeyring":
        return self

    def get_password(self, service: str, name: str) -> str | None:
        if self.broken:
            raise RuntimeError(MARK)
        return self.kept.get((service, name))

    def set_password(self, service: str, name: str, password: str) -> None:
        if self.broken:
            raise RuntimeError(MARK)
        self.kept[service, name] = password


def test_a_keyring_is_used_where_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    credential = Credential("web", "u", "i", "c", "a")
    with pytest.raises(OAuthFailed, match="`keyring` is not installed"):
        CredentialStore(tmp_path, "keyring").save(credential)
    ring = FakeKeyring()
    ring.__spec__ = importlib.machinery.ModuleSpec("keyring", None)
    monkeypatch.setitem(sys.modules, "keyring", ring)
    CredentialStore(tmp_path, "file").save(credential)
    CredentialStore(tmp_path, "keyring").save(credential)
    # What the keyring has is not left lying in the file.
    assert stored(tmp_path) == {}
    (tmp_path / ".credentials.json").unlink()
    for kind in ("keyring", "auto"):
        store = CredentialStore(tmp_path, kind)
        store.save(credential)
        assert json.loads(ring.kept["app-server MCP credentials", credential.key])
        assert store.load("web", "u") == credential
        assert not (tmp_path / ".credentials.json").exists()
        ring.kept.clear()
        assert store.load("web", "u") is None
    ring.broken = True
    with pytest.raises(OAuthFailed, match=r"^the keyring cannot be used: RuntimeError$"):
        CredentialStore(tmp_path, "keyring").load("web", "u")
    # A keyring that cannot be used counts as none.
    CredentialStore(tmp_path, "auto").save(credential)
    assert CredentialStore(tmp_path, "auto").load("web", "u") == credential
    assert CredentialStore(tmp_path, "file").load("web", "u") == credential


# Discovery.


async def found_at(peer: OAuthPeer) -> tuple[str, str, str | None] | None:
    async with open_web(peer.url, {}) as web:
        found = await discover(web, peer.url)
    return None if found is None else (found.issuer, found.resource, found.scope)


async def test_metadata_is_looked_for_where_it_may_be() -> None:
    async with OAuthPeer().serve() as peer:
        named = peer.documents[f"{PRM}/mcp"]
        own = peer.metadata(issuer=peer.origin)
        asked = (peer.issuer, peer.url, "a b")
        assert await found_at(peer) == asked
        peer.challenges_get = False
        peer.named = "/elsewhere"
        peer.documents["/elsewhere"] = peer.documents.pop(f"{PRM}/mcp")
        assert await found_at(peer) == asked
        # A name on another machine is not followed.
        peer.named = "@evil.example/x"
        peer.documents[f"{PRM}/mcp"] = named
        assert await found_at(peer) == asked
        peer.challenge = False
        usual = (peer.issuer, peer.url, "read write")
        assert await found_at(peer) == usual
        peer.documents = {PRM: named, "/.well-known/openid-configuration/as": peer.metadata()}
        assert await found_at(peer) == usual
        peer.documents = {PRM: named, "/as/.well-known/openid-configuration": peer.metadata()}
        assert await found_at(peer) == usual
        # Older servers are their own authorization servers.
        for path in ("oauth-authorization-server", "openid-configuration"):
            peer.documents = {f"/.well-known/{path}": own}
            assert await found_at(peer) == (peer.origin, peer.url, None)
        peer.requests.clear()
        peer.documents = {PRM: {"nonsense": 1}, "/.well-known/openid-configuration": []}
        assert await found_at(peer) is None
        assert [path for _, path, _ in peer.requests] == [
            f"{PRM}/mcp",
            PRM,
            "/.well-known/oauth-authorization-server/mcp",
            "/.well-known/oauth-authorization-server",
            "/.well-known/openid-configuration/mcp",
            "/mcp/.well-known/openid-configuration",
            "/.well-known/openid-configuration",
        ]


async def test_metadata_that_contradicts_itself_is_refused() -> None:
    async with OAuthPeer().serve() as peer:
        path = "/.well-known/oauth-authorization-server/as"
        for change, words in (
            ({"issuer": "https://evil.example"}, "names another issuer"),
            ({"token_endpoint": "http://far.example/t"}, "an address that is not allowed"),
            ({"code_challenge_methods_supported": ["plain"]}, "PKCE with S256"),
            ({"service_documentation": "https://x/" + "y" * 300_000}, "is larger than"),
        ):
            peer.documents[path] = peer.metadata(**change)
            with pytest.raises(OAuthFailed, match=words):
                await found_at(peer)
        peer.documents[path] = 500
        with pytest.raises(OAuthUnavailable, match="HTTP 500"):
            await found_at(peer)
        peer.documents[f"{PRM}/mcp"]["resource"] = "https://other.example/"
        with pytest.raises(OAuthFailed, match="that of another resource"):
            await found_at(peer)
        peer.documents[f"{PRM}/mcp"] = peer.documents[PRM] = {
            "resource": peer.url,
            "authorization_servers": ["http://192.0.2.1/"],
        }
        with pytest.raises(OAuthFailed, match="an address that the server names is not allowed"):
            await found_at(peer)


async def test_addresses_are_visited_only_where_they_make_sense() -> None:
    async with httpx2.AsyncClient(transport=httpx2.MockTransport(redirecting)) as client:
        far = Web(client, "http://tools.example:8/mcp", {"x-own": "1"})
        near = Web(client, "http://127.0.0.1:8/mcp", {})
        for web, url, allowed in (
            (far, "https://login.example/x", True),
            (far, "http://tools.example:8/x", True),
            (far, "http://tools.example/x", False),
            (far, "http://login.example/x", False),
            (far, "https://127.0.0.1/x", False),
            (far, "https://localhost/x", False),
            (far, "file:///etc/passwd", False),
            (far, "http://x:port", False),
            (near, "http://localhost:1/x", True),
            (near, "http://[::1]:1/x", True),
            (near, "https://login.example/x", True),
            (near, "http://login.example/x", False),
        ):
            assert web.may_visit(url) is allowed, url
        # Redirects stay within an origin, and so do the headers of the server.
        answer = await far.get("http://tools.example:8/within", {})
        assert (answer.status, answer.body) == (200, b"own: 1")
        answer = await far.get("https://login.example/within", {})
        assert (answer.status, answer.body) == (200, b"own: ")
        assert (await far.get("http://tools.example:8/away", {})).status == 307
        assert (await far.get("http://tools.example:8/round", {})).status == 307
        assert (await far.post("http://tools.example:8/within", {}, b"")).status == 307
        with pytest.raises(OAuthUnavailable, match=r"^cannot reach http://tools.example:8/dead:"):
            await far.get("http://u:p@tools.example:8/dead?k=v", {})
    with pytest.raises(OAuthFailed, match="makes no sense"):
        async with open_web("http://x:port", {}):
            pass


def redirecting(request: httpx2.Request) -> httpx2.Response:
    if request.url.path == "/dead":
        raise httpx2.ConnectError("no")
    places = {"/within": "/there", "/away": "https://evil.example/", "/round": "/round"}
    if (place := places.get(request.url.path)) is not None:
        return httpx2.Response(307, headers={"location": place})
    return httpx2.Response(200, text=f"own: {request.headers.get('x-own', '')}")


# Status.


class Idle:
    """A connection that nobody calls."""

    def __init__(self) -> None:
        self.closed = anyio.Event()

    async def request(self, *_: Any, **__: Any) -> Any:
        raise AssertionError


def fresh_server(peer: OAuthPeer, home: Path | None, **more: Any) -> McpServer:
    transport = HttpTransport(peer.url, oauth=OAuthSettings(home=home), **more)
    return McpServer(ServerConfig("web", transport), NoProcesses(), lambda *_: None)


def server_of(peer: OAuthPeer, home: Path | None, failure: bool = True, **more: Any) -> McpServer:
    server = fresh_server(peer, home, **more)
    if failure:
        server.failed(NotLoggedIn())
    else:
        server.ready(Idle(), Listing())
    return server


@claim("oauth:status-words")
async def test_the_status_says_whether_there_is_a_sign_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    async with OAuthPeer().serve() as peer:
        probe = AuthProbe(lambda: clock[0])
        server = server_of(peer, tmp_path)
        assert await probe.status(server) == "notLoggedIn"
        asked = len(peer.requests)
        assert await probe.status(server) == "notLoggedIn"
        assert len(peer.requests) == asked
        # A server that answers 401 and no more has no sign-in.
        peer.documents.clear()
        clock[0] = 1000.0
        assert await probe.status(server) == "unsupported"
        peer.publish()
        for limit in ("DISCOVERY_S", "PATIENCE_S"):
            monkeypatch.setattr(f"app_server.mcp.auth_status.{limit}", 0.05)
            clock[0] += 1000.0
            peer.gates[f"{PRM}/mcp"] = gate = Gate()
            slow = server_of(peer, tmp_path, failure=limit == "DISCOVERY_S")
            assert await probe.status(slow) == "unknown"
            gate.opened.set()
            clock[0] += 31.0
            monkeypatch.undo()
            assert await probe.status(slow) == "notLoggedIn"
        assert await probe.status(server_of(peer, None)) == "unsupported"
        assert await probe.status(server_of(peer, tmp_path, auth="chatgpt")) == "unsupported"
        keep(tmp_path, peer, {"access_token": "a"})
        assert await probe.status(server) == "oAuth"
        keep(tmp_path, peer, {"access_token": "a"}, **SOON)
        assert await probe.status(server) == "notLoggedIn"
        (tmp_path / ".credentials.json").write_text("[")
        assert await probe.status(server) == "unsupported"


async def test_answers_are_remembered_for_so_many_servers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.mcp.auth_status.MAX_KEPT", 1)
    async with OAuthPeer().serve() as one, OAuthPeer().serve() as other:
        probe = AuthProbe()
        for peer in (one, other, one):
            assert await probe.status(server_of(peer, tmp_path)) == "notLoggedIn"
        assert len([path for _, path, _ in one.requests if path == f"{PRM}/mcp"]) == 2


# Configuration.


def test_settings_of_a_sign_in_are_read(tmp_path: Path) -> None:
    document = {
        "mcp_oauth_credentials_store": "file",
        "mcp_oauth_callback_port": 1,
        "mcp_oauth_callback_url": "http://127.0.0.1:1/all",
        "mcp_servers": {
            "a": {
                "url": "http://x",
                "auth": "oauth",
                "oauth_resource": "r",
                "scopes": ["s"],
                "oauth": {"client_id": "c", "callback_url": "u", "callback_port": 2},
            },
            "b": {"url": "http://x", "auth": "chatgpt"},
        },
    }
    servers = read_mcp_settings(Config(document, tmp_path / "config.toml")).servers
    a, b = servers["a"].transport, servers["b"].transport
    assert isinstance(a, HttpTransport)
    assert isinstance(b, HttpTransport)
    assert a.oauth == OAuthSettings(tmp_path, "file", "c", "u", 2, "r", ["s"])
    assert b.oauth == OAuthSettings(
        tmp_path, "file", callback_url="http://127.0.0.1:1/all", callback_port=1
    )
    assert (a.signs_in, b.signs_in) == (True, False)
    for change, text in (
        ({"oauth": {"callback_port": 65_536}}, "integer `65536`, expected u16"),
        ({"auth": "basic"}, "unknown variant `basic`, expected one of `oauth`"),
        ({"oauth": "secret"}, "invalid type: string, expected a map"),
    ):
        broken = Config({"mcp_servers": {"a": {"url": "http://x", **change}}})
        with pytest.raises(ConfigError, match=text):
            read_mcp_settings(broken)
