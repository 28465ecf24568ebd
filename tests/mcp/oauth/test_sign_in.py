"""oauth: signing in to MCP servers behind a URL."""

import base64
import hashlib
import json
import logging
import stat
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
import pytest

# Imported here so that no test waits for it.
import app_server.handlers.integrations.mcp
import app_server.mcp.oauth.authorization  # noqa: F401
from app_server.mcp.oauth.credentials import CredentialStore
from tests.support.harness import Served, WireClient, claim, serve
from tests.support.mcp_peers.calls import settled
from tests.support.mcp_peers.oauth_peer import MARK, OAuthPeer, query_of
from tests.support.mcp_peers.sign_in import (
    auth_status,
    come_back,
    completed,
    stored,
    table,
    visit,
)
from tests.support.model import Gate


def basic_auth(user: str, password: str) -> str:
    """Return the header of RFC 7617."""
    return f"Basic {base64.b64encode(f'{user}:{password}'.encode()).decode()}"


@asynccontextmanager
async def signing_in(
    home: Path, *lines: str, name: str = "web", top: str = ""
) -> AsyncIterator[tuple[OAuthPeer, Served, WireClient]]:
    """Run a peer that wants a sign-in, a server that has it configured, and a client."""
    async with OAuthPeer().serve() as peer:
        config = f"{top}\n{table(peer, *lines, name=name)}"
        async with serve(home, config=config) as served, served.client() as client:
            yield peer, served, client


@claim("oauth:login", "oauth:ready", "oauth:store", "oauth:status", "oauth:secrets")
async def test_a_sign_in_makes_the_server_ready_and_no_secret_leaves(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with signing_in(tmp_path) as (peer, served, client):
        thread_id = await client.start_thread()
        assert await settled(client, "web") == (
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
        assert await settled(client, "web") == ("ready", None)
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
        await settled(client, "web")
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
            patched.setattr("app_server.mcp.oauth.authorization.discover", broken)
            error = await client.refusal("mcpServer/oauth/login", {"name": "web"})
            assert error.message == "failed to login to MCP server 'web': the sign-in broke"
            patched.setattr("app_server.handlers.integrations.mcp.MAX_LOGINS", 0)
            assert (await client.refusal("mcpServer/oauth/login", {"name": "web"})).code == -32001
        (tmp_path / ".credentials.json").write_text("mine")
        error = await client.refusal("mcpServer/oauth/login", {"name": "web"})
        assert error.message.endswith(
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
                assert basic_auth("client-1", secret) == sent
            (entry,) = stored(home).values()
            assert (entry["client_secret"], entry["client_auth_method"]) == (secret, method)
            loaded = CredentialStore(home, "file").load("web", peer.url)
            assert loaded is not None
            assert (loaded.client_secret, loaded.client_auth_method) == (secret, method)


DOCUMENT = "https://client.example/app.json"
"""A client metadata document."""


async def test_a_metadata_document_is_the_client_where_such_clients_are_known(
    tmp_path: Path,
) -> None:
    for supported, wanted, client_id, redirect in (
        (True, "auto", DOCUMENT, "/callback"),
        (True, "cimd", DOCUMENT, "/callback"),
        (True, "dcr", "client-1", "/callback/"),
        (False, "auto", "client-1", "/callback/"),
    ):
        home = tmp_path / f"{supported}-{wanted}"
        async with signing_in(home, f'oauth = {{ client_id = "{DOCUMENT}" }}') as (peer, _, client):
            peer.documents["/.well-known/oauth-authorization-server/as"] = peer.metadata(
                client_id_metadata_document_supported=supported
            )
            params = {"name": "web", "clientRegistration": wanted}
            answer = await client.call("mcpServer/oauth/login", params)
            query = query_of(answer["authorizationUrl"])
            assert query["client_id"] == client_id
            path = urlsplit(query["redirect_uri"]).path
            assert path == redirect if client_id == DOCUMENT else path.startswith(redirect)
            assert len(peer.posts("/as/register")) == (client_id != DOCUMENT)
            await come_back(peer, answer)
            assert (await completed(client))["success"] is True
            (entry,) = stored(home).values()
            assert entry["client_id"] == client_id


async def test_a_metadata_document_that_cannot_be_the_client_is_refused(tmp_path: Path) -> None:
    none = "`oauth.client_id` is not the address of a client metadata document"
    unknown = "the authorization server knows no client metadata documents"
    for name, settings, text in (
        ("none", "", none),
        ("plain", 'oauth = { client_id = "mine" }', none),
        ("unknown", f'oauth = {{ client_id = "{DOCUMENT}" }}', unknown),
    ):
        async with signing_in(tmp_path / name, settings) as (_, _, client):
            params = {"name": "web", "clientRegistration": "cimd"}
            error = await client.refusal("mcpServer/oauth/login", params)
            assert error.message == f"failed to login to MCP server 'web': {text}"


async def test_a_configured_secret_proves_the_client_and_is_not_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = f"secret-{MARK}"
    settings = 'oauth = { client_id = "mine", client_secret_env_var = "WEB_SECRET" }'
    for name, methods, sends in (
        ("unsaid", {}, "header"),
        ("basic", {"token_endpoint_auth_methods_supported": ["client_secret_basic"]}, "header"),
        (
            "both",
            {
                "token_endpoint_auth_methods_supported": [
                    "client_secret_post",
                    "client_secret_basic",
                ]
            },
            "header",
        ),
        ("post", {"token_endpoint_auth_methods_supported": ["client_secret_post"]}, "form"),
    ):
        home = tmp_path / name
        monkeypatch.delenv("WEB_SECRET", raising=False)
        async with signing_in(home, settings) as (peer, _, client):
            peer.documents["/.well-known/oauth-authorization-server/as"] = peer.metadata(**methods)
            thread_id = await client.start_thread()
            assert (await settled(client, "web"))[0] == "failed"
            error = await client.refusal("mcpServer/oauth/login", {"name": "web"})
            assert error.message == (
                "failed to login to MCP server 'web': "
                "Environment variable WEB_SECRET for MCP server 'web' is not set"
            )
            monkeypatch.setenv("WEB_SECRET", secret)
            peer.expires_in = 1
            await come_back(peer, await client.call("mcpServer/oauth/login", {"name": "web"}))
            assert (await completed(client))["success"] is True
            # The token is worn out at once: the call renews it.
            assert await settled(client, "web") == ("ready", None)
            params = {"threadId": thread_id, "server": "web", "tool": "look"}
            await client.call("mcpServer/tool/call", params)
            forms = peer.posts("/as/token")
            assert {form["grant_type"] for form in forms} == {"authorization_code", "refresh_token"}
            sent = [seen.get("authorization") for seen in peer.headers if "content-length" in seen]
            if sends == "header":
                assert set(sent) == {basic_auth("mine", secret)}
                assert [form.get("client_secret") for form in forms] == [None] * len(forms)
            else:
                assert set(sent) == {None}
                assert {form["client_secret"] for form in forms} == {secret}
            assert secret not in (home / ".credentials.json").read_text()


@claim("oauth:scopes")
async def test_a_call_that_lacks_scopes_asks_for_them_with_the_next_sign_in(
    tmp_path: Path,
) -> None:
    async with signing_in(tmp_path) as (peer, _, client):
        thread_id = await client.start_thread()
        assert (await settled(client, "web"))[0] == "failed"
        await come_back(peer, await client.call("mcpServer/oauth/login", {"name": "web"}))
        assert (await completed(client))["success"] is True
        assert await settled(client, "web") == ("ready", None)
        peer.wanted = "c a"
        call = {"threadId": thread_id, "server": "web", "tool": "look"}
        for _ in range(2):
            error = await client.refusal("mcpServer/tool/call", call)
            assert (error.code, error.message, error.data) == (
                -32000,
                f"HTTP status 403 from {peer.url}: the sign-in lacks the scopes c a",
                {"status": 403, "scopes": ["c", "a"]},
            )
        (entry,) = stored(tmp_path).values()
        assert (entry["scopes"], entry["wanted_scopes"]) == (["a", "b"], ["c", "a"])
        # Each call is made once: nothing else may be had with this token.
        assert len(peer.posts("/as/token")) == 1
        answer = await client.call("mcpServer/oauth/login", {"name": "web"})
        assert query_of(answer["authorizationUrl"])["scope"] == "a b c"
        await come_back(peer, answer)
        assert (await completed(client))["success"] is True
        (entry,) = stored(tmp_path).values()
        assert (entry["scopes"], "wanted_scopes" in entry) == (["a", "b", "c"], False)
        # The connection takes the token of the new sign-in.
        peer.too_weak = set(peer.mcp_tokens)
        result = await client.call("mcpServer/tool/call", call)
        assert result["content"][0]["text"] == "seen"
