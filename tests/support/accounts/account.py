"""An account, its issuer and its file, and what clients hear of it."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import anyio
import anyio.to_thread
import pytest

from app_server.accounts.account_settings import AccountSettings

# Imported here so that no test waits for them.
from app_server.accounts.accounts import Accounts
from app_server.accounts.login import CallbackPorts
from app_server.handlers.server.account import AccountNews
from tests.support.accounts.issuer_peer import IssuerPeer
from tests.support.harness import (
    WAIT_S,
    Served,
    WireClient,
    serve,
)

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
            call_back(served, 0)
            async with served.client() as client:
                yield issuer, served, client


def call_back(served: Served, *ports: int, **waits: float) -> None:
    """Let browsers come back to the first of the ports that is free, 0 for any."""
    callback = CallbackPorts(ports=ports, **waits)
    served.services.part(AccountNews).callback = callback


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


def account(kind: dict[str, Any] | None, user: str | None = None) -> dict[str, Any]:
    return {
        "account": kind,
        "userId": user,
        "requiresOpenaiAuth": True,
        "workspaceRouting": None,
    }


PLUS = {"type": "chatgpt", "email": "a@example.com", "planType": "plus", "workspaceName": None}


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
