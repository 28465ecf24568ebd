"""accounts: signing in and out, renewing tokens, and requests made as the account."""

import fcntl
import importlib.machinery
import json
import logging
import os
import socket
import stat
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import anyio
import anyio.to_thread
import pytest

# Imported here so that no test waits for them.
from app_server.accounts.accounts import LOOK_MS, Accounts
from app_server.accounts.claims import InvalidToken, plan_name, read_claims
from app_server.accounts.credentials import AuthState, Credentials
from app_server.accounts.errors import (
    OTHER_ACCOUNT,
    REFUSED,
    AccountError,
    IssuerUnavailable,
    LoginFailed,
    RefreshFailed,
)
from app_server.accounts.grants import Grants
from app_server.accounts.issuer import CLIENT_ID, Issuer, require_private_channel
from app_server.accounts.login.device_code import DeviceCode, await_tokens
from app_server.accounts.record import AuthRecord, Tokens, external_credentials
from app_server.accounts.settings import AccountSettings, read_account_settings
from app_server.accounts.store import AuthStore
from app_server.accounts.web import open_issuer_web
from app_server.cli.serve import quiet_libraries
from app_server.config.values import Config, ConfigError
from app_server.turns.model.providers import Provider, read_providers
from tests.mcp.test_oauth import FakeKeyring
from tests.support.harness import (
    WAIT_S,
    Gate,
    Refusal,
    Served,
    WireClient,
    claim,
    methods_of,
    serve,
)
from tests.support.issuer_peer import MARK, IssuerPeer, make_id_token, make_jwt

PROVIDER = "requires_openai_auth = true"
NOW_MS = 1_800_000_000_000


@asynccontextmanager
async def server(
    home: Path, monkeypatch: pytest.MonkeyPatch, config: str = "", *, signed_in: bool = False
) -> AsyncIterator[tuple[IssuerPeer, Served, WireClient]]:
    """Run an issuer, a server whose model wants an account, and a client."""
    async with IssuerPeer().serve() as issuer:
        issuer.use(monkeypatch)
        if signed_in:
            keep(home, issuer)
        # The table of the scripted model is open where the configuration begins.
        wanted = f"{config}\n[model_providers.other]\nname = 'x'\n"
        async with serve(home, config=wanted) as served:
            file = home / "config.toml"
            text = file.read_text()
            file.write_text(text.replace('name = "scripted"\n', f'name = "scripted"\n{PROVIDER}\n'))
            async with served.client() as client:
                yield issuer, served, client


async def browse(url: str, **query: str) -> tuple[int, str | None, str]:
    """Be the browser: returns status, where it is sent on to, and the text."""
    parts = urlsplit(url)

    def ask() -> tuple[int, str | None, str]:
        with closing(HTTPConnection(parts.netloc, timeout=WAIT_S)) as connection:
            connection.request("GET", f"{parts.path}?{urlencode(query)}")
            response = connection.getresponse()
            return response.status, response.getheader("location"), response.read().decode()

    return await anyio.to_thread.run_sync(ask)


def callback_of(auth_url: str) -> str:
    return dict(parse_qsl(urlsplit(auth_url).query))["redirect_uri"]


def stored(home: Path) -> Any:
    return json.loads((home / "auth.json").read_text())


def keep(home: Path, issuer: IssuerPeer, **tokens: Any) -> dict[str, Any]:
    """Store a sign-in as Codex would, with members that are unknown here."""
    given = {**issuer.give(), **tokens}
    document: dict[str, Any] = {
        "auth_mode": "chatgpt",
        "OPENAI_API_KEY": None,
        "tokens": {
            **given,
            "oauth_provenance": {"issuer": issuer.url, "client_id": "client-1"},
            "login_owner_id": "owner",
            "account_id": "acct-1",
        },
        "last_refresh": "2026-11-21T06:52:10.032057970Z",
        "agent_identity": {"more": True},
    }
    home.mkdir(exist_ok=True)
    (home / "auth.json").write_text(json.dumps(document))
    return document


async def news(client: WireClient) -> list[Any]:
    """Return how a sign-in ended, up to the news of the account."""
    messages = await client.until("account/updated")
    return [(m["method"], m["params"]) for m in messages if m["method"].startswith("account/")]


def completed(login_id: str | None = None, error: str | None = None) -> tuple[str, Any]:
    return (
        "account/login/completed",
        {
            "loginId": login_id,
            "success": error is None,
            "error": error,
            "onboardingEntrypoint": None,
        },
    )


def updated(mode: str | None, plan: str | None = None) -> tuple[str, Any]:
    return "account/updated", {"authMode": mode, "planType": plan}


async def failure_of(client: WireClient) -> Any:
    params = (await client.wait_for("account/login/completed"))["params"]
    assert params["success"] is False
    return params["error"]


def account(kind: dict[str, Any] | None, user: str | None = None) -> dict[str, Any]:
    return {
        "account": kind,
        "userId": user,
        "requiresOpenaiAuth": True,
        "workspaceRouting": None,
    }


PLUS = {"type": "chatgpt", "email": "a@example.com", "planType": "plus", "workspaceName": None}


# Signing in and out, over the wire.


@claim("account:api-key", "account:logout", "account:read")
async def test_an_api_key_is_kept_in_codex_s_file_and_forgotten_by_a_sign_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(tmp_path, monkeypatch) as (issuer, served, client):
        assert await client.call("account/read", {}) == account(None)
        answer = await client.call("account/login/start", {"type": "apiKey", "apiKey": "sk-1"})
        assert answer == {"type": "apiKey"}
        assert await news(client) == [completed(), updated("apikey")]
        file = tmp_path / "auth.json"
        assert file.read_text() == '{\n  "auth_mode": "apikey",\n  "OPENAI_API_KEY": "sk-1"\n}'
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert await client.call("account/read", {}) == account({"type": "apiKey"})
        await client.turn(await client.start_thread(), "go")
        assert served.model.headers[0]["authorization"] == "bearer sk-1"
        assert "chatgpt-account-id" not in served.model.headers[0]
        assert await client.call("account/logout") == {}
        assert await news(client) == [updated(None)]
        assert not file.exists()
        assert await client.call("account/read", {}) == account(None)
        assert issuer.requests == []


@claim("account:browser")
async def test_a_browser_signs_in_and_the_tokens_are_kept_before_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(tmp_path, monkeypatch) as (issuer, _, client):
        answer = await client.call("account/login/start", {"type": "chatgpt"})
        url = answer["authUrl"]
        query = dict(parse_qsl(urlsplit(url).query))
        assert url.startswith(f"{issuer.url}/oauth/authorize?")
        assert {k: v for k, v in query.items() if k not in ("state", "code_challenge")} == {
            "response_type": "code",
            "client_id": CLIENT_ID,
            "redirect_uri": callback_of(url),
            "code_challenge_method": "S256",
            "scope": "openid profile email offline_access"
            " api.connectors.read api.connectors.invoke",
            "id_token_add_organizations": "true",
            "codex_cli_simplified_flow": "true",
            "originator": "test",
        }
        assert urlsplit(callback_of(url)).path == "/auth/callback"
        agreed = issuer.agree(url)
        # What does not belong to this sign-in changes nothing.
        for place, sent, status in (
            ("/nothing", agreed, 404),
            ("/auth/callback", {**agreed, "state": "x"}, 400),
        ):
            where = callback_of(url).replace("/auth/callback", place)
            assert (await browse(where, **sent))[0] == status
        status, location, page = await browse(callback_of(url), **agreed)
        assert (status, location) == (200, None)
        assert MARK not in page
        assert await news(client) == [completed(answer["loginId"]), updated("chatgpt", "plus")]
        document = stored(tmp_path)
        assert document == {
            "auth_mode": "chatgpt",
            "OPENAI_API_KEY": None,
            "tokens": {
                "id_token": make_id_token(),
                "access_token": make_jwt(number=1, exp=4_000_000_000),
                "refresh_token": f"refresh-{MARK}-1",
                "oauth_provenance": {"issuer": issuer.url, "client_id": CLIENT_ID},
                "account_id": "acct-1",
            },
            "last_refresh": document["last_refresh"],
        }
        assert await client.call("account/read", {}) == account(PLUS, "user-1")
        (exchange,) = issuer.posts("/oauth/token")
        assert exchange["redirect_uri"] == callback_of(url)


async def test_the_browser_may_end_on_a_page_of_the_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(tmp_path, monkeypatch) as (issuer, _, client):
        for brand, more in (("codex", {}), ("chatgpt", {"appBrand": "chatgpt"})):
            wanted = {"type": "chatgpt", "useHostedLoginSuccessPage": True, **more}
            url = (await client.call("account/login/start", wanted))["authUrl"]
            status, location, _ = await browse(callback_of(url), **issuer.agree(url))
            there = f"https://chatgpt.com/codex/open-app?source=login&app_brand={brand}"
            assert (status, location) == (302, there)
            await news(client)


@claim("account:browser-refused")
@pytest.mark.parametrize(
    ("query", "error"),
    [
        ({"error": "access_denied", "error_description": "nope"}, "Sign-in failed: nope"),
        ({"error": "server_error"}, "Sign-in failed: server_error"),
        (
            {"error": "access_denied", "error_description": "Missing_Codex_Entitlement"},
            "Codex is not enabled for your workspace."
            " Contact your workspace administrator to request access to Codex.",
        ),
        ({}, "Missing authorization code. Sign-in could not be completed."),
        (
            {"code": "wrong"},
            "Token exchange failed: token endpoint returned status 400 Bad Request: bad code",
        ),
    ],
)
async def test_a_refused_browser_ends_the_sign_in_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, query: dict[str, str], error: str
) -> None:
    async with server(tmp_path, monkeypatch) as (issuer, _, client):
        url = (await client.call("account/login/start", {"type": "chatgpt"}))["authUrl"]
        state = issuer.agree(url)["state"]
        assert (await browse(callback_of(url), state=state, **query))[0] == 200
        assert await failure_of(client) == f"Login server error: {error}"
        assert not (tmp_path / "auth.json").exists()


async def test_what_the_token_endpoint_answers_is_bounded_and_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases: tuple[tuple[tuple[int, Any], str], ...] = (
        ((500, f"<p>{MARK}".encode()), "status 500 Internal Server Error: unknown error"),
        ((400, {"error": {"message": "m" * 400}}), f"status 400 Bad Request: {'m' * 300}"),
        ((200, {"id_token": MARK}), "the token endpoint's answer makes no sense"),
        (
            (200, {"id_token": "x", "access_token": "y", "refresh_token": "z"}),
            "Login server error: invalid ID token format",
        ),
        ((200, b"x" * 300_000), "an answer is larger than 262144 bytes"),
    )
    async with server(tmp_path, monkeypatch) as (issuer, _, client):
        for answer, ending in cases:
            issuer.answers["/oauth/token"] = answer
            url = (await client.call("account/login/start", {"type": "chatgpt"}))["authUrl"]
            _, _, page = await browse(callback_of(url), **issuer.agree(url))
            error = await failure_of(client)
            assert error.endswith(ending)
            assert MARK not in error + page


@claim("account:port")
async def test_a_port_that_another_sign_in_holds_is_asked_for_and_else_the_next_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.accounts.login.browser.TRY_PAUSE_S", 0)
    async with server(tmp_path / "a", monkeypatch) as (_, _, first):
        url = (await first.call("account/login/start", {"type": "chatgpt"}))["authUrl"]
        port = urlsplit(callback_of(url)).port
        async with server(tmp_path / "b", monkeypatch) as (_, _, second):
            monkeypatch.setattr("app_server.accounts.login.browser.TRY_PAUSE_S", 0.05)
            monkeypatch.setattr("app_server.accounts.login.browser.PORTS", (port,))
            answer = await second.call("account/login/start", {"type": "chatgpt"})
            assert callback_of(answer["authUrl"]) == callback_of(url)
            assert await failure_of(first) == "Login server error: Login cancelled"
    with socket.create_server(("127.0.0.1", 0)) as held:
        busy = held.getsockname()[1]
        monkeypatch.setattr("app_server.accounts.login.browser.TRY_PAUSE_S", 0)
        monkeypatch.setattr("app_server.accounts.login.browser.CANCEL_S", 0.01)
        async with server(tmp_path / "c", monkeypatch) as (_, _, client):
            monkeypatch.setattr("app_server.accounts.login.browser.PORTS", (busy, 0))
            url = (await client.call("account/login/start", {"type": "chatgpt"}))["authUrl"]
            assert urlsplit(callback_of(url)).port not in (busy, None)
            monkeypatch.setattr("app_server.accounts.login.browser.PORTS", (busy,))
            error = await client.refusal("account/login/start", {"type": "chatgpt"})
            assert (error.code, error.data) == (-32603, {"code": "loginFailed"})
            text = f"failed to start login server: Port 127.0.0.1:{busy} is already in use"
            assert error.message == text


@claim("account:device-code")
async def test_a_device_code_signs_in_once_it_was_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(tmp_path, monkeypatch) as (issuer, _, client):
        answer = await client.call("account/login/start", {"type": "chatgptDeviceCode"})
        assert answer == {
            "type": "chatgptDeviceCode",
            "loginId": answer["loginId"],
            "verificationUrl": f"{issuer.url}/codex/device",
            "userCode": "ABCD-1234",
        }
        assert await news(client) == [completed(answer["loginId"]), updated("chatgpt", "plus")]
        question = {"device_auth_id": f"device-{MARK}", "user_code": "ABCD-1234"}
        assert issuer.posts("/api/accounts/deviceauth/token") == [question]
        (exchange,) = issuer.posts("/oauth/token")
        assert exchange["redirect_uri"] == f"{issuer.url}/deviceauth/callback"
        issuer.answers["/api/accounts/deviceauth/token"] = (500, {})
        await client.call("account/login/start", {"type": "chatgptDeviceCode"})
        text = "device auth failed with status 500 Internal Server Error"
        assert await failure_of(client) == text
        for status, code, message in (
            (
                404,
                -32600,
                "device code login is not enabled for this Codex server."
                " Use the browser login or verify the server URL.",
            ),
            (
                500,
                -32603,
                "failed to request device code:"
                " device code request failed with status 500 Internal Server Error",
            ),
        ):
            issuer.answers["/api/accounts/deviceauth/usercode"] = (status, {})
            error = await client.refusal("account/login/start", {"type": "chatgptDeviceCode"})
            assert (error.code, error.message) == (code, message)


async def test_the_issuer_is_asked_again_at_its_pace_until_the_code_was_entered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with IssuerPeer(pending=3).serve() as peer, open_issuer_web() as web:
        issuer = Issuer(peer.url, "client-1")
        code = DeviceCode("ABCD", "device", 7.0)
        tokens = await await_tokens(web, issuer, code, sleep)
        assert tokens.refresh_token == f"refresh-{MARK}-1"
        assert slept == [7.0, 7.0, 7.0]
        monkeypatch.setattr("app_server.accounts.login.device_code.MAX_WAIT_S", 0)
        with pytest.raises(LoginFailed, match=r"^device auth timed out after 15 minutes$"):
            await await_tokens(web, issuer, code, sleep)


@claim("account:one-sign-in")
async def test_one_sign_in_waits_at_a_time_and_can_be_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(tmp_path, monkeypatch) as (issuer, _, client):
        issuer.answers["/api/accounts/deviceauth/token"] = (403, {})
        first = await client.call("account/login/start", {"type": "chatgpt"})
        second = await client.call("account/login/start", {"type": "chatgptDeviceCode"})
        failed = await client.wait_for("account/login/completed")
        text = "Login server error: Login was not completed"
        assert ("account/login/completed", failed["params"]) == completed(first["loginId"], text)
        error = await client.refusal("account/login/cancel", {"loginId": "x"})
        assert (error.code, error.message) == (-32600, "invalid login id: x")
        for login_id, status in ((first, "notFound"), (second, "canceled"), (second, "notFound")):
            wanted = {"loginId": login_id["loginId"]}
            assert await client.call("account/login/cancel", wanted) == {"status": status}
        failed = await client.wait_for("account/login/completed")
        text = "Login was not completed"
        assert ("account/login/completed", failed["params"]) == completed(second["loginId"], text)
        assert not (tmp_path / "auth.json").exists()


async def test_of_two_sign_ins_that_begin_at_once_one_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(tmp_path, monkeypatch) as (issuer, served, client), served.client() as other:
        issuer.answers["/api/accounts/deviceauth/token"] = (403, {})
        gate = issuer.gates["/api/accounts/deviceauth/usercode"] = Gate()
        first = await client.request("account/login/start", {"type": "chatgptDeviceCode"})
        await gate.wait_until_reached()
        second = await other.request("account/login/start", {"type": "chatgptDeviceCode"})
        # An answer to another request of the second client: its sign-in has begun by now.
        await other.call("thread/loaded/list", {})
        gate.opened.set()
        login_id = (await client.answer(first))["result"]["loginId"]
        newer = (await other.answer(second))["result"]["loginId"]
        failed = await client.wait_for("account/login/completed")
        text = "Login was not completed"
        assert ("account/login/completed", failed["params"]) == completed(login_id, text)
        wanted = {"loginId": newer}
        assert await client.call("account/login/cancel", wanted) == {"status": "canceled"}


async def test_a_sign_in_that_has_its_tokens_is_carried_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(tmp_path, monkeypatch, signed_in=True) as (issuer, _, client):
        gate = issuer.gates["/oauth/revoke"] = Gate()
        answer = await client.call("account/login/start", {"type": "chatgptDeviceCode"})
        # What was there before is given back: the new tokens are in place by then.
        await gate.wait_until_reached()
        wanted = {"loginId": answer["loginId"]}
        assert await client.call("account/login/cancel", wanted) == {"status": "notFound"}
        gate.opened.set()
        assert await news(client) == [completed(answer["loginId"]), updated("chatgpt", "plus")]
        body = {
            "token": f"refresh-{MARK}-1",
            "token_type_hint": "refresh_token",
            "client_id": "client-1",
        }
        assert issuer.posts("/oauth/revoke") == [body]


@claim("account:logout-revokes")
async def test_a_sign_out_gives_the_tokens_back_and_does_not_depend_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(tmp_path, monkeypatch) as (issuer, _, client):
        for status in (200, 500):
            keep(tmp_path, issuer)
            issuer.requests.clear()
            issuer.answers["/oauth/revoke"] = (status, {})
            assert await client.call("account/logout") == {}
            assert await news(client) == [updated(None)]
            assert [path for path, _ in issuer.requests] == ["/oauth/revoke"]
            assert not (tmp_path / "auth.json").exists()


@claim("account:forced")
async def test_the_configuration_may_allow_one_way_to_sign_in_and_some_workspaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    supplied = {"type": "chatgptAuthTokens", "accessToken": make_jwt(), "chatgptAccountId": "a"}
    ways: dict[str, dict[str, Any]] = {
        "API key": {"type": "apiKey", "apiKey": "sk"},
        "ChatGPT": {"type": "chatgpt"},
        "device": {"type": "chatgptDeviceCode"},
        "External ChatGPT auth": supplied,
    }
    use_key, use_chatgpt = "Use API key login instead.", "Use ChatGPT login instead."
    cases = {
        'forced_login_method = "api"': {
            "ChatGPT": f"ChatGPT login is disabled. {use_key}",
            "device": f"ChatGPT login is disabled. {use_key}",
            "External ChatGPT auth": f"External ChatGPT auth is disabled. {use_key}",
        },
        'forced_login_method = "chatgpt"': {"API key": f"API key login is disabled. {use_chatgpt}"},
        'forced_chatgpt_workspace_id = ["z", "y"]': {
            "External ChatGPT auth": "External auth must use one of workspace(s)"
            ' ["z", "y"], but received "a".'
        },
    }
    for config, refusals in cases.items():
        async with server(tmp_path, monkeypatch, config, signed_in=True) as (issuer, _, client):
            # What may not be used counts as nothing, and stays where it is.
            allowed = 'method = "chatgpt"' in config
            found = account(PLUS, "user-1") if allowed else account(None)
            assert await client.call("account/read", {}) == found
            for way, message in refusals.items():
                error = await client.refusal("account/login/start", ways[way])
                assert (error.code, error.message) == (-32600, message)
            assert stored(tmp_path)["auth_mode"] == "chatgpt"
            if "workspace" in config:
                url = (await client.call("account/login/start", ways["ChatGPT"]))["authUrl"]
                assert dict(parse_qsl(urlsplit(url).query))["allowed_workspace_id"] == "z,y"
                await browse(callback_of(url), **issuer.agree(url))
                text = "Login server error: Login is restricted to workspace id(s) z, y."
                assert await failure_of(client) == text


@claim("account:backend")
async def test_what_needs_the_hosted_backend_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = {"account/rateLimits/read": "rate limits", "account/usage/read": "token usage"}
    async with server(tmp_path, monkeypatch) as (issuer, _, client):

        async def check(code: int, text: str) -> None:
            for method, what in cases.items():
                error = await client.refusal(method)
                assert (error.code, error.message) == (code, text.format(what))

        await check(-32600, "codex account authentication required to read {}")
        await client.call("account/login/start", {"type": "apiKey", "apiKey": "sk"})
        await check(-32600, "chatgpt authentication required to read {}")
        await client.call("account/login/start", {"type": "chatgptDeviceCode"})
        await client.wait_for("account/updated", lambda p: p["authMode"] == "chatgpt")
        await check(-32603, "reading {} is not built yet")
        bedrock = {"type": "amazonBedrock", "apiKey": "k", "region": "us-east-1"}
        error = await client.refusal("account/login/start", bedrock)
        assert error.data == {"code": "loginNotOffered"}
        for key in ("", "  ", "a\nb", "k\u00e9", "x" * 65_537):
            error = await client.refusal("account/login/start", {"type": "apiKey", "apiKey": key})
            assert (error.code, error.data) == (-32600, {"code": "invalidApiKey"})
        assert len(issuer.posts("/oauth/revoke")) == 0


# Requests made as the account.


@claim("account:renewed")
async def test_a_refused_token_is_renewed_once_and_what_is_unknown_in_the_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(tmp_path, monkeypatch, signed_in=True) as (issuer, served, client):
        before = stored(tmp_path)
        issuer.plan = "team"
        issuer.requests.clear()
        served.model.scripts.append(Refusal(401))
        turn = await client.turn(await client.start_thread(), "go")
        assert turn["status"] == "completed"
        tokens = [headers["authorization"].split(" ")[1] for headers in served.model.headers]
        after = stored(tmp_path)
        assert tokens == [
            before["tokens"]["access_token"].lower(),
            after["tokens"]["access_token"].lower(),
        ]
        assert {headers["chatgpt-account-id"] for headers in served.model.headers} == {"acct-1"}
        renewal = {
            "client_id": "client-1",
            "grant_type": "refresh_token",
            "refresh_reason": "unauthorized_recovery",
            "refresh_token": f"refresh-{MARK}-1",
        }
        assert issuer.requests == [("/oauth/token", renewal)]
        renewed = {**before["tokens"], **{k: after["tokens"][k] for k in ("id_token",)}}
        renewed["access_token"] = make_jwt(number=2, exp=4_000_000_000)
        renewed["refresh_token"] = f"refresh-{MARK}-2"
        assert after == {**before, "tokens": renewed, "last_refresh": after["last_refresh"]}
        assert stat.S_IMODE((tmp_path / "auth.json").stat().st_mode) == 0o600
        # The plan is another one: that is news. It came before the end of the turn.
        assert any('"planType":"team"' in line.replace(" ", "") for line in client.transcript)


@claim("account:refresh-refused")
async def test_a_token_that_cannot_be_renewed_fails_the_turn_and_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(tmp_path, monkeypatch, signed_in=True) as (issuer, served, client):
        issuer.refresh_tokens.clear()
        issuer.requests.clear()
        thread_id = await client.start_thread()
        for _ in range(2):
            served.model.scripts.append(Refusal(401))
            turn = await client.turn(thread_id, "go")
            assert turn["error"]["message"] == (
                "Your access token could not be refreshed because your refresh token was"
                " already used. Please log out and sign in again."
            )
            assert turn["error"]["codexErrorInfo"] == "unauthorized"
        assert len(issuer.requests) == 1
        assert await client.call("account/read", {"refreshToken": True}) == account(None)
        assert len(issuer.requests) == 1
        # A new sign-in mends it.
        await client.call("account/login/start", {"type": "chatgptDeviceCode"})
        await news(client)
        assert await client.call("account/read", {}) == account(PLUS, "user-1")


async def test_an_issuer_that_is_not_well_fails_the_turn_for_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(tmp_path, monkeypatch, signed_in=True) as (issuer, served, client):
        issuer.answers["/oauth/token"] = (503, {"error": "busy"})
        served.model.scripts.append(Refusal(401))
        thread_id = await client.start_thread()
        turn = await client.turn(thread_id, "go")
        assert turn["error"]["message"] == "Failed to refresh token: 503 Service Unavailable"
        del issuer.answers["/oauth/token"]
        served.model.scripts.append(Refusal(401))
        assert (await client.turn(thread_id, "go"))["status"] == "completed"


async def test_a_model_that_refuses_every_token_is_asked_a_bounded_number_of_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(tmp_path, monkeypatch, signed_in=True) as (_, served, client):
        served.model.scripts.extend([Refusal(401)] * 9)
        turn = await client.turn(await client.start_thread(), "go")
        assert turn["status"] == "failed"
        assert len(served.model.requests) == 3
        await client.call("account/login/start", {"type": "apiKey", "apiKey": "sk"})
        turn = await client.turn(await client.start_thread(), "go")
        assert turn["status"] == "failed"
        # An API key has no other.
        assert len(served.model.requests) == 4


async def test_a_provider_with_a_key_of_its_own_is_not_shown_the_account(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OWN_KEY", "own")
    async with server(tmp_path, monkeypatch, signed_in=True) as (_, served, client):
        config = {"model_providers.scripted.experimental_bearer_token": "mine"}
        await client.turn(await client.start_thread(config=config), "go")
        config = {"model_providers.scripted.env_key": "OWN_KEY"}
        await client.turn(await client.start_thread(config=config), "go")
        sent = [headers.get("authorization") for headers in served.model.headers]
        assert sent == ["bearer mine", "bearer own"]
        await client.turn(
            await client.start_thread(
                config={"model_providers.scripted.requires_openai_auth": False}
            ),
            "go",
        )
        assert "authorization" not in served.model.headers[-1]


@claim("account:supplied")
async def test_tokens_of_a_client_stay_in_memory_and_it_alone_is_asked_for_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(tmp_path, monkeypatch) as (_, served, client), served.client() as other:
        token = make_jwt(
            **{"https://api.openai.com/auth": {"chatgpt_user_id": "u", "chatgpt_plan_type": "pro"}},
            email="x@example.com",
        )
        wanted = {"type": "chatgptAuthTokens", "accessToken": token, "chatgptAccountId": "acct-9"}
        assert await client.call("account/login/start", wanted) == {"type": "chatgptAuthTokens"}
        told = [completed(), updated("chatgptAuthTokens", "pro")]
        assert await news(client) == told
        assert await news(other) == told
        assert not (tmp_path / "auth.json").exists()
        shown = {**PLUS, "email": "x@example.com", "planType": "pro"}
        assert await client.call("account/read", {"refreshToken": True}) == account(shown, "u")
        for way in ({"type": "apiKey", "apiKey": "sk"}, {"type": "chatgpt"}):
            error = await client.refusal("account/login/start", way)
            assert (error.code, error.data) == (-32600, {"code": "externalAuthActive"})
        served.model.scripts.append(Refusal(401))
        thread_id = await client.start_thread()
        text = [{"type": "text", "text": "go"}]
        await client.call("turn/start", {"threadId": thread_id, "input": text})
        question = await client.wait_for("account/chatgptAuthTokens/refresh")
        assert question["params"] == {"reason": "unauthorized", "previousAccountId": "acct-9"}
        answer = {"accessToken": make_jwt(n=2), "chatgptAccountId": "b", "chatgptPlanType": "Team"}
        await client.send({"id": question["id"], "result": answer})
        turn = (await client.wait_for("turn/completed"))["params"]["turn"]
        assert turn["status"] == "completed"
        sent = [(h["authorization"], h["chatgpt-account-id"]) for h in served.model.headers]
        assert sent == [
            (f"bearer {token.lower()}", "acct-9"),
            (f"bearer {make_jwt(n=2).lower()}", "b"),
        ]
        assert await news(other) == [updated("chatgptAuthTokens", "team")]
        assert not any("chatgptAuthTokens/refresh" in line for line in other.transcript)
        await client.call("account/logout")
        assert await client.call("account/read", {}) == account(None)


@claim("account:supplier-fails")
async def test_a_supplier_that_refuses_is_silent_or_has_gone_fails_the_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = {"type": "chatgptAuthTokens", "accessToken": make_jwt(), "chatgptAccountId": "a"}
    text = [{"type": "text", "text": "go"}]
    forced = 'forced_chatgpt_workspace_id = ["a"]'
    async with server(tmp_path, monkeypatch, forced) as (_, served, client):
        async with served.client() as supplier:
            await supplier.call("account/login/start", wanted)
            thread_id = await client.start_thread()

            async def ask(who: WireClient, **answer: Any) -> str:
                served.model.scripts.append(Refusal(401))
                await client.call("turn/start", {"threadId": thread_id, "input": text})
                question = await who.wait_for("account/chatgptAuthTokens/refresh")
                if answer:
                    await who.send({"id": question["id"], **answer})
                turn = (await client.wait_for("turn/completed"))["params"]["turn"]
                return str(turn["error"]["message"])

            refusal = {"code": -1, "message": MARK}
            assert await ask(supplier, error=refusal) == "auth refresh request failed"
            assert await ask(supplier, result={"odd": 1}) == "auth refresh request failed"
            bad = {"accessToken": MARK, "chatgptAccountId": "a"}
            assert await ask(supplier, result=bad) == "invalid ID token format"
            other = {"accessToken": make_jwt(), "chatgptAccountId": "b"}
            text_of_other = "auth refresh returned a workspace that is not allowed"
            assert await ask(supplier, result=other) == text_of_other
            monkeypatch.setattr("app_server.handlers.account.account.SUPPLY_S", 0.05)
            assert await ask(supplier) == "auth refresh request timed out after 0s"
            monkeypatch.setattr("app_server.handlers.account.account.SUPPLY_S", WAIT_S)
        # Gone: whoever is there is asked.
        assert await ask(client, error=refusal) == "auth refresh request failed"
        garbage = {**wanted, "accessToken": "garbage"}
        error = await client.refusal("account/login/start", garbage)
        assert error.message == "failed to set external auth: invalid ID token format"


@claim("account:provider")
async def test_signing_in_makes_openai_the_default_and_chatgpt_goes_to_its_own_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    async with server(tmp_path, monkeypatch) as (_, served, client):
        (tmp_path / "config.toml").write_text(f'chatgpt_base_url = "{served.model.url}/"')
        # Who chose no provider may want to sign in; who chose the offline model does not.
        assert await client.call("account/read", {}) == account(None)
        shown = await client.call("config/read", {})
        assert shown["config"]["model_provider"] == "offline"
        read = account(None) | {"requiresOpenaiAuth": False}
        chosen_offline = {"keyPath": "model_provider", "mergeStrategy": "replace"}
        await client.call("config/value/write", {**chosen_offline, "value": "offline"})
        assert await client.call("account/read", {}) == read
        await client.call("config/value/write", {**chosen_offline, "value": None})
        await client.call("account/login/start", {"type": "chatgptDeviceCode"})
        await news(client)
        shown = await client.call("config/read", {})
        assert shown["config"]["model_provider"] == "openai"
        assert (await client.call("account/read", {}))["requiresOpenaiAuth"] is True
        await client.turn(await client.start_thread(), "go")
        assert served.model.paths == ["/v1/codex/responses"]
        chosen = read_providers(Config({"chatgpt_base_url": "https://c/x/"}))["openai"]
        assert chosen == Provider(
            "openai",
            "OpenAI",
            "https://api.openai.com/v1",
            requires_openai_auth=True,
            chatgpt_url="https://c/x/codex",
            spare_env_key="OPENAI_API_KEY",
        )
        await client.call("account/logout")
        turn = await client.turn(await client.start_thread(modelProvider="openai"), "go")
        assert turn["error"]["message"] == "Missing environment variable: `OPENAI_API_KEY`."
        # A key of the environment does for who is not signed in.
        monkeypatch.setenv("OPENAI_API_KEY", "sk-env")
        assert await client.call("account/read", {}) == read


@claim("account:other-process")
async def test_what_another_process_signed_in_is_used_at_once_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.accounts.accounts.LOOK_MS", 0)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with server(tmp_path, monkeypatch) as (issuer, served, client):
        (tmp_path / "config.toml").write_text(f'chatgpt_base_url = "{served.model.url}/"')
        assert (await client.call("account/read", {}))["account"] is None
        shown = await client.call("config/read", {})
        assert shown["config"]["model_provider"] == "offline"
        keep(tmp_path, issuer)
        shown = await client.call("config/read", {})
        assert shown["config"]["model_provider"] == "openai"
        told = await client.wait_for("account/updated")
        assert told["params"]["authMode"] == "chatgpt"
        assert (await client.call("account/read", {}))["account"]["type"] == "chatgpt"
        (tmp_path / "auth.json").unlink()
        assert (await client.call("account/read", {}))["account"] is None
        told = await client.wait_for("account/updated")
        assert told["params"]["authMode"] is None


@claim("account:secrets")
async def test_no_token_leaves_but_to_its_issuer_its_model_and_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    quiet_libraries()
    async with server(tmp_path, monkeypatch) as (issuer, served, client):
        url = (await client.call("account/login/start", {"type": "chatgpt"}))["authUrl"]
        await browse(callback_of(url), **issuer.agree(url))
        await news(client)
        thread_id = await client.start_thread()
        served.model.scripts.append(Refusal(401))
        await client.turn(thread_id, "go")
        issuer.answers["/oauth/token"] = (500, {"error_description": MARK, "token": MARK})
        served.model.scripts.append(Refusal(401))
        await client.turn(thread_id, "go")
        for method, params in (
            ("account/read", {"refreshToken": True}),
            ("config/read", {"includeLayers": True}),
            ("thread/read", {"threadId": thread_id, "includeTurns": True}),
        ):
            await client.call(method, params)
        state = served.services.accounts.current()
        issuer.answers["/oauth/revoke"] = (500, {"error": MARK})
        record = AuthRecord(stored(tmp_path))
        holders = [
            str(path.relative_to(tmp_path))
            for path in tmp_path.rglob("*")
            if path.is_file() and MARK.encode() in path.read_bytes()
        ]
        assert holders == ["auth.json"]
        await client.call("account/logout")
        assert MARK not in repr((state, record, Tokens(MARK, MARK, MARK)))
        received = [line for line in client.transcript if line.startswith("<")]
        assert MARK not in "".join(received)
    assert MARK not in "".join(record.getMessage() for record in caplog.records)


# The account itself.


def accounts(
    home: Path,
    *,
    settings: AccountSettings | None = None,
    now_ms: Callable[[], int] = lambda: NOW_MS,
    issuer: Any = None,
) -> Accounts:
    async def read_settings() -> AccountSettings:
        return settings or AccountSettings()

    return Accounts(home, read_settings, now_ms, issuer)


@claim("account:revision")
async def test_every_change_of_the_credentials_and_nothing_else_grows_the_revision(
    tmp_path: Path,
) -> None:
    async with IssuerPeer().serve() as issuer:
        keep(tmp_path, issuer)
        mine = accounts(tmp_path)
        told: list[AuthState] = []

        def broken(state: AuthState) -> None:
            raise RuntimeError("a listener's own fault")

        mine.subscribe(broken)
        stop = mine.subscribe(told.append)
        assert mine.current() == AuthState(None, 0)

        async def supply(previous: str | None) -> Credentials:
            return external_credentials(make_jwt(n=2), "acct-9", None)

        async def again() -> None:
            await mine.load()

        async def supplied() -> None:
            credentials = external_credentials(make_jwt(n=1), "acct-9", "pro")
            await mine.use_supplied(credentials, supply)

        async def refused() -> None:
            credentials = mine.current().credentials
            assert credentials is not None
            await mine.replace(credentials)

        steps: list[tuple[Any, int, str | None]] = [
            (mine.load, 1, "chatgpt"),
            (again, 1, "chatgpt"),
            (mine.fresh, 1, "chatgpt"),
            (mine.refresh, 2, "chatgpt"),
            (lambda: mine.sign_in_with_key("sk-1"), 3, "apikey"),
            (lambda: mine.sign_in_with_key("sk-1"), 3, "apikey"),
            (mine.refresh, 3, "apikey"),
            (lambda: mine.sign_in_with_key("sk-2"), 4, "apikey"),
            (supplied, 5, "chatgptAuthTokens"),
            (mine.refresh, 5, "chatgptAuthTokens"),
            (refused, 6, "chatgptAuthTokens"),
            (mine.sign_out, 7, None),
            (mine.sign_out, 7, None),
        ]
        for number, (step, revision, kind) in enumerate(steps):
            await step()
            state = mine.current()
            found = None if state.credentials is None else state.credentials.kind
            assert (number, state.revision, found) == (number, revision, kind)
        assert [state.revision for state in told] == [1, 2, 3, 4, 5, 6, 7]
        assert told[-1] is mine.current()
        stop()
        await mine.sign_in_with_key("sk-3")
        assert len(told) == 7


@claim("account:sign-ins")
async def test_another_token_of_an_account_is_no_other_sign_in(tmp_path: Path) -> None:
    async with IssuerPeer().serve() as issuer:
        keep(tmp_path, issuer)
        mine = accounts(tmp_path)
        seen: list[tuple[int, int]] = []
        mine.subscribe(lambda state: seen.append((state.revision, state.sign_in)))
        await mine.load()
        await mine.refresh()
        given, was = issuer.give(), Issuer(issuer.url, "client-1")
        await mine.sign_in_with_tokens(Tokens(**given), was)
        issuer.account = "acct-2"
        await mine.sign_in_with_tokens(Tokens(**issuer.give()), was)
        await mine.sign_out()
        assert seen == [(1, 1), (2, 1), (3, 2), (4, 3), (5, 4)]


@claim("account:other-process")
async def test_what_another_process_stored_is_taken_over_when_the_account_is_used(
    tmp_path: Path,
) -> None:
    now_ms = [NOW_MS]
    file = tmp_path / "auth.json"

    async with IssuerPeer().serve() as issuer:
        mine, other = (accounts(tmp_path, now_ms=lambda: now_ms[0]) for _ in range(2))

        async def seen() -> tuple[str | None, str | None, int, int]:
            now_ms[0] += LOOK_MS
            state = await mine.fresh()
            assert state is mine.current()
            who = state.credentials
            known = (None, None) if who is None else (who.kind, who.account_id)
            return *known, state.revision, state.sign_in

        assert await seen() == (None, None, 0, 0)
        keep(tmp_path, issuer)
        assert await seen() == ("chatgpt", "acct-1", 1, 1)
        await other.refresh()
        assert await seen() == ("chatgpt", "acct-1", 2, 1)
        assert mine.current().credentials == other.current().credentials
        # What this process has written itself is nothing new.
        await mine.refresh()
        assert await seen() == ("chatgpt", "acct-1", 3, 1)
        issuer.account = "acct-2"
        await other.sign_in_with_tokens(Tokens(**issuer.give()), Issuer(issuer.url, "client-1"))
        # Nobody else's token is taken for the one that was worn out.
        with pytest.raises(RefreshFailed, match=f"^{OTHER_ACCOUNT}$"):
            await mine.refresh()
        # Not at once: the file is looked at once in a while.
        assert (await mine.fresh()).revision == 3
        assert await seen() == ("chatgpt", "acct-2", 4, 2)
        whole = file.read_bytes()
        file.write_bytes(whole[:-9])
        assert await seen() == ("chatgpt", "acct-2", 4, 2)
        file.write_bytes(b"")
        assert await seen() == ("chatgpt", "acct-2", 4, 2)
        file.write_bytes(whole)
        assert await seen() == ("chatgpt", "acct-2", 4, 2)
        await other.sign_in_with_key("sk-1")
        assert await seen() == ("apikey", None, 5, 3)
        await other.sign_out()
        assert await seen() == (None, None, 6, 4)

        async def supply(previous: str | None) -> Credentials:
            raise AssertionError("nobody refused the token")

        supplied = external_credentials(make_jwt(n=1), "acct-9", "pro")
        await mine.use_supplied(supplied, supply)
        keep(tmp_path, issuer)
        assert await seen() == ("chatgptAuthTokens", "acct-9", 7, 5)


@claim("account:early")
async def test_a_token_is_renewed_before_it_expires_and_used_while_that_does_not_work(
    tmp_path: Path,
) -> None:
    now_ms = [NOW_MS]
    async with IssuerPeer().serve() as issuer:
        issuer.access_claims = {"exp": NOW_MS // 1000 + 3600}
        keep(tmp_path, issuer)
        mine = accounts(tmp_path, now_ms=lambda: now_ms[0])
        await mine.fresh()
        assert issuer.requests == []
        now_ms[0] += 3_540_000
        issuer.answers["/oauth/token"] = (500, {})
        before = await mine.fresh()
        assert before.revision == 1
        # It is left alone for a minute: nobody waits for a broken issuer at every request.
        assert (await mine.fresh()).revision == 1
        assert len(issuer.requests) == 1
        issuer.answers.clear()
        now_ms[0] += 60_000
        assert (await mine.fresh()).revision == 2
        assert [body["refresh_reason"] for body in issuer.posts("/oauth/token")] == [
            "proactive",
            "proactive",
        ]
        # Without an expiry its age counts.
        issuer.access_claims = {}
        document = keep(tmp_path, issuer, access_token="opaque")
        for days, requests in ((7, 2), (9, 3)):
            now_ms[0] = AuthRecord(document).last_refresh_ms or 0
            now_ms[0] += days * 24 * 3_600_000
            mine = accounts(tmp_path, now_ms=lambda: now_ms[0])
            await mine.fresh()
            assert len(issuer.requests) == requests


@claim("account:serialised")
async def test_a_refresh_token_is_shown_once_however_many_want_a_new_token(
    tmp_path: Path,
) -> None:
    async with IssuerPeer().serve() as issuer:
        keep(tmp_path, issuer)
        issuer.requests.clear()
        # As two processes: they share nothing but the files.
        both = [accounts(tmp_path), accounts(tmp_path)]
        worn = [(await one.load()).credentials for one in both]
        gate = issuer.gates["/oauth/token"] = Gate()
        states: list[AuthState] = []

        async def replace_worn(number: int) -> None:
            credentials = worn[number]
            assert credentials is not None
            states.append(await both[number].replace(credentials))

        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as tasks:
                for number in (0, 0, 1, 1):
                    tasks.start_soon(replace_worn, number)
                await gate.wait_until_reached()
                gate.opened.set()
        assert len(issuer.requests) == 1
        assert {state.credentials for state in states} == {both[0].current().credentials}
        assert [state.revision for state in states] == [2, 2, 2, 2]


async def test_the_answer_to_a_refresh_is_kept_though_nobody_waits_for_it_any_more(
    tmp_path: Path,
) -> None:
    async with IssuerPeer().serve() as issuer:
        keep(tmp_path, issuer)
        mine = accounts(tmp_path)
        await mine.load()
        gate = issuer.gates["/oauth/token"] = Gate()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(mine.refresh)
            await gate.wait_until_reached()
            tasks.cancel_scope.cancel()
            gate.opened.set()
        assert stored(tmp_path)["tokens"]["refresh_token"] == f"refresh-{MARK}-2"
        assert mine.current().revision == 2


async def test_others_that_hold_the_credentials_are_waited_for_with_a_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.accounts.store.LOCK_WAIT_S", 0.01)
    monkeypatch.setattr("app_server.accounts.store.WRITE_WAIT_S", 0)
    mine = accounts(tmp_path)
    with (tmp_path / "auth.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(AccountError, match=r"^another process has held the credentials for"):
            await mine.sign_in_with_key("sk")
    with (tmp_path / "auth.json.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(AccountError, match=r"auth.json.lock: another process has held it"):
            await mine.sign_in_with_key("sk")
    assert mine.current() == AuthState(None, 0)
    assert not (tmp_path / "auth.json").exists()


@claim("account:other-process")
async def test_what_another_process_signed_in_is_taken_over_only_for_the_same_account(
    tmp_path: Path,
) -> None:
    async with IssuerPeer().serve() as issuer:
        keep(tmp_path, issuer)
        mine = accounts(tmp_path)
        worn = (await mine.load()).credentials
        assert worn is not None
        document = keep(tmp_path, issuer)
        issuer.requests.clear()
        taken = (await mine.replace(worn)).credentials
        assert taken is not None
        assert taken.token == document["tokens"]["access_token"]
        document["tokens"]["account_id"] = "acct-2"
        (tmp_path / "auth.json").write_text(json.dumps(document))
        with pytest.raises(RefreshFailed, match=f"^{OTHER_ACCOUNT}$"):
            await mine.replace(taken)
        (tmp_path / "auth.json").unlink()
        with pytest.raises(RefreshFailed, match=f"^{OTHER_ACCOUNT}$"):
            await mine.refresh()
        keep(tmp_path, issuer, access_token=taken.token, refresh_token="")
        with pytest.raises(RefreshFailed, match=f"^{REFUSED}$"):
            await mine.refresh()
        assert mine.refusal == REFUSED
        assert issuer.requests == []


async def test_what_an_issuer_answers_to_a_refresh_decides_whether_it_is_asked_again(
    tmp_path: Path,
) -> None:
    again = "Please log out and sign in again."
    cases: tuple[tuple[tuple[int, Any], type[AccountError], str], ...] = (
        ((401, {}), RefreshFailed, f"refreshed. {again}"),
        ((400, {"error": "refresh_token_expired"}), RefreshFailed, f"has expired. {again}"),
        ((400, {"code": "Refresh_Token_Invalidated"}), RefreshFailed, f"was revoked. {again}"),
        ((400, {"error": "odd"}), IssuerUnavailable, "Failed to refresh token: 400 Bad Request"),
        ((200, {}), IssuerUnavailable, "the issuer's answer to a refresh makes no sense"),
        ((200, b"["), IssuerUnavailable, "the issuer's answer to a refresh makes no sense"),
    )
    async with IssuerPeer().serve() as issuer:
        record = AuthRecord(keep(tmp_path, issuer))
        for answer, kind, text in cases:
            issuer.answers["/oauth/token"] = answer
            with pytest.raises(AccountError) as caught:
                await Grants().renew(record, "forced")
            assert (type(caught.value), str(caught.value).endswith(text)) == (kind, True)
        issuer.answers["/oauth/token"] = (200, {"access_token": "new", "id_token": "no token"})
        mine = accounts(tmp_path)
        await mine.load()
        await mine.refresh()
        tokens = stored(tmp_path)["tokens"]
        assert tokens == {**record.document["tokens"], "access_token": "new"}


async def test_an_issuer_that_cannot_be_reached_is_named_without_its_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    record = AuthRecord.of_tokens(
        Tokens(make_id_token(), "a", "r"), Issuer("http://127.0.0.1:1", "c"), NOW_MS
    )
    with pytest.raises(IssuerUnavailable, match=r"^cannot reach the issuer: ConnectError$"):
        await Grants().renew(record, "forced")
    monkeypatch.setenv("CODEX_REFRESH_TOKEN_URL_OVERRIDE", "http://example.com/token")
    with pytest.raises(AccountError, match="neither https nor on this machine"):
        await Grants().renew(record, "forced")
    for nonsense in ("http://[x", "https://[::1/"):
        monkeypatch.setenv("CODEX_REFRESH_TOKEN_URL_OVERRIDE", nonsense)
        for question in (Grants().renew(record, "forced"), Grants().revoke(record)):
            with pytest.raises(AccountError, match="makes no sense"):
                await question
    monkeypatch.delenv("CODEX_REFRESH_TOKEN_URL_OVERRIDE")
    monkeypatch.setattr("app_server.accounts.web.WHOLE_REQUEST_S", 0.01)
    async with IssuerPeer().serve() as issuer:
        gate = issuer.gates["/oauth/token"] = Gate()
        record = AuthRecord.of_tokens(
            Tokens(make_id_token(), "a", "r"), Issuer(issuer.url, "c"), NOW_MS
        )
        with pytest.raises(IssuerUnavailable, match="did not answer in time"):
            await Grants().renew(record, "forced")
        gate.opened.set()


# Where credentials are kept.


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        ('{"auth_mode": "apikey", "OPENAI_API_KEY": "k"}', "apikey"),
        ('{"OPENAI_API_KEY": "k"}', "apikey"),
        ('{"auth_mode": "apikey"}', None),
        ('{"auth_mode": "what", "OPENAI_API_KEY": "k"}', None),
        ('{"auth_mode": ["x"], "OPENAI_API_KEY": "k"}', None),
        ('{"OPENAI_API_KEY": "a\\nb"}', None),
        ('{"tokens": {"access_token": "a", "id_token": "no"}}', None),
        ('{"tokens": {"id_token": "' + make_id_token() + '"}}', None),
        ('{"tokens": 5}', None),
        ("[]", None),
        ("{broken", None),
        ("{" + " " * 1_048_577 + "}", None),
    ],
)
@claim("account:file")
async def test_a_file_that_makes_no_sense_is_nobody_and_is_left_alone(
    tmp_path: Path, content: str, kind: str | None
) -> None:
    (tmp_path / "auth.json").write_text(content)
    found = (await accounts(tmp_path).load()).credentials
    assert (None if found is None else found.kind) == kind
    assert (tmp_path / "auth.json").read_text() == content


async def test_the_store_is_a_file_the_keyring_or_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = AuthRecord.of_api_key("sk")
    with pytest.raises(AccountError, match="`keyring` is not installed"):
        await AuthStore(tmp_path, "keyring").save(record)
    ephemeral = AuthStore(tmp_path, "ephemeral")
    await ephemeral.save(record)
    assert await ephemeral.load() == record
    await ephemeral.delete()
    assert await ephemeral.load() is None
    assert list(tmp_path.iterdir()) == []
    ring = ForgetfulKeyring()
    ring.__spec__ = importlib.machinery.ModuleSpec("keyring", None)
    monkeypatch.setitem(sys.modules, "keyring", ring)
    await AuthStore(tmp_path, "file").save(record)
    for kind in ("keyring", "auto"):
        store = AuthStore(tmp_path, kind)
        await store.save(record)
        # What the keyring has is not left lying in the file.
        assert not (tmp_path / "auth.json").exists()
        ((service, name), text) = next(iter(ring.kept.items()))
        assert (service, name[:4], json.loads(text)) == ("Codex Auth", "cli|", record.document)
        assert await store.load() == record
        await store.delete()
        assert ring.kept == {}
        assert await store.load() is None
    ring.broken = True
    with pytest.raises(AccountError, match=r"^the keyring cannot be used: RuntimeError$"):
        await AuthStore(tmp_path, "keyring").load()
    # A keyring that cannot be used counts as none.
    auto = AuthStore(tmp_path, "auto")
    await auto.save(record)
    assert await auto.load() == record
    await auto.delete()
    assert await auto.load() is None
    (tmp_path / "auth.json").mkdir()
    with pytest.raises(AccountError, match="Is a directory"):
        await AuthStore(tmp_path, "file").load()


class ForgetfulKeyring(FakeKeyring):
    """A keyring that forgets what it is told to."""

    def delete_password(self, service: str, name: str) -> None:
        del self.kept[service, name]


def test_settings_are_read_and_wrong_ones_named() -> None:
    def read(**document: Any) -> AccountSettings:
        return read_account_settings(Config(document))

    assert read() == AccountSettings()
    assert read(
        cli_auth_credentials_store="ephemeral",
        forced_login_method="api",
        forced_chatgpt_workspace_id=" one ",
    ) == AccountSettings("ephemeral", "api", ("one",))
    assert read(forced_chatgpt_workspace_id=["a", "b"]).workspaces == ("a", "b")
    assert read(forced_chatgpt_workspace_id="  ").workspaces == ()
    for key in ("cli_auth_credentials_store", "forced_login_method"):
        with pytest.raises(ConfigError, match="unknown variant `x`"):
            read(**{key: "x"})


# Tokens and addresses.


@claim("account:plans")
def test_plans_are_named_as_the_wire_does_and_tell_workspaces_apart() -> None:
    names = {"plus": "plus", "hc": "enterprise", "education": "edu", "TEAM": "unknown"}
    assert {raw: plan_name(raw) for raw in names} == names
    assert plan_name(None) == "unknown"
    for plan, is_workspace in (("plus", False), ("team", True), ("hc", True), ("odd", False)):
        document = {"tokens": {"id_token": make_id_token(plan=plan), "access_token": "a"}}
        found = AuthRecord(document).credentials()
        assert found is not None
        assert (found.is_workspace, found.account_id) == (is_workspace, "acct-1")
    supplied = external_credentials(make_jwt(), "acct", "TEAM")
    assert (supplied.plan, supplied.is_workspace) == ("team", True)


def test_a_token_says_what_it_says_and_nothing_else() -> None:
    fedramp = {"https://api.openai.com/auth": {"user_id": "u", "chatgpt_account_is_fedramp": True}}
    profile = {"https://api.openai.com/profile": {"email": "p@example.com"}}
    claims = read_claims(make_jwt(exp=5.5, **fedramp, **profile))
    assert (claims.user_id, claims.is_fedramp, claims.email) == ("u", True, "p@example.com")
    assert claims.expires_at == 5
    headers = replace(external_credentials(make_jwt(**fedramp), "a", None)).headers()
    assert headers["x-openai-fedramp"] == "true"
    for token in ("", "a.b", "a..c", "a.!.c", "a.W10.c", "a.e30", "a.bm8.c"):
        with pytest.raises(InvalidToken, match=r"^invalid ID token format$"):
            read_claims(token)
    for account_id in ("", "a\r\nb", "\u00e9"):
        with pytest.raises(InvalidToken, match="cannot be sent"):
            external_credentials(make_jwt(), account_id, None)


def test_addresses_follow_the_variables_of_codex(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("CODEX_"):
            monkeypatch.delenv(name)
    usual = Issuer.for_sign_in()
    assert usual == Issuer("https://auth.openai.com", CLIENT_ID)
    assert usual.refresh_url == "https://auth.openai.com/oauth/token"
    assert usual.revoke_url == "https://auth.openai.com/oauth/revoke"
    monkeypatch.setenv("CODEX_APP_SERVER_LOGIN_ISSUER", "https://i.example/")
    monkeypatch.setenv("CODEX_APP_SERVER_LOGIN_CLIENT_ID", "mine")
    assert Issuer.for_sign_in() == Issuer("https://i.example", "mine")
    monkeypatch.setenv("CODEX_REFRESH_TOKEN_URL_OVERRIDE", "http://127.0.0.1:5/oauth/token?x=1")
    assert usual.refresh_url == "http://127.0.0.1:5/oauth/token?x=1"
    assert usual.revoke_url == "http://127.0.0.1:5/oauth/revoke"
    monkeypatch.setenv("CODEX_REVOKE_TOKEN_URL_OVERRIDE", "https://r.example/r")
    assert usual.revoke_url == "https://r.example/r"
    for private in ("https://x", "http://localhost:1", "http://[::1]/", "http://127.0.0.1"):
        require_private_channel(private)
    for public in ("http://example.com", "ftp://localhost", "x", ""):
        with pytest.raises(AccountError):
            require_private_channel(public)


@claim("account:after-restart")
async def test_a_sign_in_is_there_after_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with server(tmp_path, monkeypatch) as (_, _, client):
        await client.call("account/login/start", {"type": "chatgptDeviceCode"})
        assert methods_of(await client.until("account/updated"))[-1] == "account/updated"
    async with server(tmp_path, monkeypatch) as (_, _, client):
        assert await client.call("account/read", {}) == account(PLUS, "user-1")
