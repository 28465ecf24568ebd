"""accounts: signing in and out, over the wire."""

import socket
import stat
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

# Imported here so that no test waits for them.
from app_server.accounts.account_errors import (
    LoginFailed,
)
from app_server.accounts.issuer import CLIENT_ID, Issuer
from app_server.accounts.login import MAX_DEVICE_WAIT_S, DeviceCode, await_tokens
from app_server.accounts.web import open_issuer_web
from tests.support.accounts.account import (
    PLUS,
    account,
    browse,
    call_back,
    callback_of,
    completed,
    keep,
    news,
    server,
    stored,
    updated,
)
from tests.support.accounts.issuer_peer import MARK, IssuerPeer, make_id_token, make_jwt
from tests.support.harness import WireClient, claim
from tests.support.model import Gate


async def failure_of(client: WireClient) -> Any:
    params = (await client.wait_for("account/login/completed"))["params"]
    assert params["success"] is False
    return params["error"]


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
async def test_a_browser_signs_in_and_the_tokens_are_stored_before_it_is_notified(
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
    async with server(tmp_path / "a", monkeypatch) as (_, _, first):
        url = (await first.call("account/login/start", {"type": "chatgpt"}))["authUrl"]
        port = urlsplit(callback_of(url)).port
        assert port is not None
        async with server(tmp_path / "b", monkeypatch) as (_, served, second):
            call_back(served, port, pause_s=0.05)
            answer = await second.call("account/login/start", {"type": "chatgpt"})
            assert callback_of(answer["authUrl"]) == callback_of(url)
            assert await failure_of(first) == "Login server error: Login cancelled"
    with socket.create_server(("127.0.0.1", 0)) as held:
        busy = held.getsockname()[1]
        async with server(tmp_path / "c", monkeypatch) as (_, served, client):
            call_back(served, busy, 0, pause_s=0, cancel_s=0.01)
            url = (await client.call("account/login/start", {"type": "chatgpt"}))["authUrl"]
            assert urlsplit(callback_of(url)).port not in (busy, None)
            call_back(served, busy, pause_s=0, cancel_s=0.01)
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


async def test_the_issuer_is_asked_again_at_its_pace_until_the_code_was_entered() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async with IssuerPeer(pending=3).serve() as peer, open_issuer_web() as web:
        issuer = Issuer(peer.url, "client-1")
        code = DeviceCode("ABCD", "device", 7.0)
        tokens = await await_tokens(web, issuer, code, sleep)
        assert tokens.refresh_token == f"refresh-{MARK}-1"
        assert slept == [7.0, 7.0, 7.0]
        assert MAX_DEVICE_WAIT_S == 15 * 60
        with pytest.raises(LoginFailed, match=r"^device auth timed out after 0 minutes$"):
            await await_tokens(web, issuer, code, sleep, max_wait_s=0)


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
async def test_what_needs_an_account_of_chatgpt_says_so(
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
        bedrock = {"type": "amazonBedrock", "apiKey": "k", "region": "us-east-1"}
        error = await client.refusal("account/login/start", bedrock)
        assert error.data == {"code": "loginNotOffered"}
        for key in ("", "  ", "a\nb", "k\u00e9", "x" * 65_537):
            error = await client.refusal("account/login/start", {"type": "apiKey", "apiKey": key})
            assert (error.code, error.data) == (-32600, {"code": "invalidApiKey"})
        assert len(issuer.posts("/oauth/revoke")) == 0
