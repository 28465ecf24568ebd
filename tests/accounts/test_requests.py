"""accounts: requests to models that are made as the account."""

import logging
import stat
from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.accounts.store import AuthRecord, Tokens
from app_server.cli.serve import quiet_libraries
from app_server.config.values import Config

# Imported here so that no test waits for them.
from app_server.handlers.server.account import AccountNews
from app_server.models.catalogue.providers import read_providers
from app_server.models.interface import Provider
from tests.support.accounts.account import (
    PLUS,
    account,
    browse,
    callback_of,
    completed,
    keep,
    news,
    server,
    stored,
    updated,
)
from tests.support.accounts.issuer_peer import MARK, make_jwt
from tests.support.harness import WAIT_S, WireClient, claim
from tests.support.model import Refusal


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
            account_news = served.services.part(AccountNews)
            account_news.supply_s = 0.05
            assert await ask(supplier) == "auth refresh request timed out after 0s"
            account_news.supply_s = WAIT_S
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
async def test_a_sign_in_of_another_process_is_used_at_once_and_notified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    async with server(tmp_path, monkeypatch) as (issuer, served, client):
        served.services.accounts.look_ms = 0
        (tmp_path / "config.toml").write_text(f'chatgpt_base_url = "{served.model.url}/"')
        assert (await client.call("account/read", {}))["account"] is None
        shown = await client.call("config/read", {})
        assert shown["config"]["model_provider"] == "offline"
        keep(tmp_path, issuer)
        # A request that comes while another one takes the account over sees the one before it.
        with anyio.fail_after(WAIT_S):
            while shown["config"]["model_provider"] != "openai":
                shown = await client.call("config/read", {})
        told = await client.wait_for("account/updated")
        assert told["params"]["authMode"] == "chatgpt"
        assert (await client.call("account/read", {}))["account"]["type"] == "chatgpt"
        (tmp_path / "auth.json").unlink()
        with anyio.fail_after(WAIT_S):
            while (await client.call("account/read", {}))["account"] is not None:
                pass
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
