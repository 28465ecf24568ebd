"""accounts: what tokens say, the addresses of the issuer, and a restart."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from app_server.accounts.account_errors import (
    AccountError,
)

# Imported here so that no test waits for them.
from app_server.accounts.credentials import InvalidToken, plan_name, read_claims
from app_server.accounts.issuer import CLIENT_ID, Issuer, require_private_channel
from app_server.accounts.store import AuthRecord, external_credentials
from tests.support.accounts.account import PLUS, account, server
from tests.support.accounts.issuer_peer import make_id_token, make_jwt
from tests.support.harness import (
    claim,
    methods_of,
)


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
