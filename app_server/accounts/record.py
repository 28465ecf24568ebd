"""The document that credentials are stored in, member by member that of Codex.

What is unknown here stays as it was when tokens are renewed; a sign-in begins a new document, since
whatever else stood there belonged to another account.
Source: docs/accounts.md, "Where credentials are kept".
"""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from app_server.accounts.credentials import (
    WORKSPACE_PLANS,
    Claims,
    Credentials,
    InvalidToken,
    Kind,
    claims_of,
    is_sendable,
    plan_name,
    read_claims,
    text_member,
)
from app_server.accounts.issuer import Issuer
from protocol.model import JsonObject

KEY = "OPENAI_API_KEY"


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens of an issuer."""

    id_token: str = field(repr=False)
    access_token: str = field(repr=False)
    refresh_token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class AuthRecord:
    """One document, whole."""

    document: JsonObject = field(repr=False)

    @classmethod
    def of_api_key(cls, key: str) -> "AuthRecord":
        """Begin a document with an API key."""
        return cls({"auth_mode": "apikey", KEY: key})

    @classmethod
    def of_tokens(cls, tokens: Tokens, issuer: Issuer, now_ms: int) -> "AuthRecord":
        """Begin a document with tokens of a sign-in.

        Raises:
            InvalidToken: the ID token is none.
        """
        return cls(
            {
                "auth_mode": "chatgpt",
                KEY: None,
                "tokens": {
                    "id_token": tokens.id_token,
                    "access_token": tokens.access_token,
                    "refresh_token": tokens.refresh_token,
                    "oauth_provenance": {"issuer": issuer.url, "client_id": issuer.client_id},
                    "account_id": read_claims(tokens.id_token).account_id,
                },
                "last_refresh": _timestamp(now_ms),
            }
        )

    def renewed(self, answer: JsonObject, now_ms: int) -> "AuthRecord":
        """Put new tokens in; what the issuer left out, and an ID token that is none, stays."""
        members = ("id_token", "access_token", "refresh_token")
        new = {name: text for name in members if (text := text_member(answer, name)) is not None}
        if claims_of(new.get("id_token")) is None:
            new.pop("id_token", None)
        tokens = {**self._tokens, **new}
        return AuthRecord({**self.document, "tokens": tokens, "last_refresh": _timestamp(now_ms)})

    @property
    def kind(self) -> Kind | None:
        """Kind of the sign-in; None for a kind that is unknown here."""
        mode = self.document.get("auth_mode")
        if mode is None:
            mode = "chatgpt" if text_member(self.document, KEY) is None else "apikey"
        known: dict[Any, Kind] = {"apikey": "apikey", "chatgpt": "chatgpt"}
        return known.get(mode) if isinstance(mode, str) else None

    @property
    def access_token(self) -> str | None:
        """The access token."""
        return text_member(self._tokens, "access_token")

    @property
    def refresh_token(self) -> str | None:
        """Refresh token of the document."""
        return text_member(self._tokens, "refresh_token")

    @property
    def given_by(self) -> Issuer:
        """Issuer of the tokens; the default issuer where none was stored."""
        provenance = self._tokens.get("oauth_provenance")
        known = provenance if isinstance(provenance, dict) else {}
        return Issuer.of(text_member(known, "issuer"), text_member(known, "client_id"))

    @property
    def last_refresh_ms(self) -> int | None:
        """Unix milliseconds of the last refresh."""
        text = text_member(self.document, "last_refresh")
        if text is None:
            return None
        try:
            return int(datetime.fromisoformat(text).timestamp() * 1000)
        except ValueError:
            return None

    def credentials(self) -> Credentials | None:
        """Return what the document is good for; None when that is nothing."""
        match self.kind:
            case "apikey":
                key = text_member(self.document, KEY)
                found = None if key is None else Credentials("apikey", key)
            case "chatgpt":
                found = self._chatgpt()
            case _:
                found = None
        return found if found is not None and _is_sendable(found) else None

    def _chatgpt(self) -> Credentials | None:
        access_token = self.access_token
        claims = claims_of(text_member(self._tokens, "id_token"))
        if access_token is None or claims is None:
            return None
        account_id = text_member(self._tokens, "account_id") or claims.account_id
        return chatgpt_credentials("chatgpt", access_token, claims, account_id, claims.plan)

    @property
    def _tokens(self) -> JsonObject:
        tokens = self.document.get("tokens")
        return tokens if isinstance(tokens, dict) else {}


def external_credentials(token: str, account_id: str, plan: str | None) -> Credentials:
    """Make credentials of a token that a client supplies; without a plan the token's counts.

    Raises:
        InvalidToken: it is no JWT.
    """
    claims = read_claims(token)
    plan = (plan or "").lower() or claims.plan
    credentials = chatgpt_credentials("chatgptAuthTokens", token, claims, account_id, plan)
    if not _is_sendable(credentials):
        raise InvalidToken("the token or the account cannot be sent")
    return credentials


def chatgpt_credentials(
    kind: Kind, token: str, claims: Claims, account_id: str | None, plan: str | None
) -> Credentials:
    """Make credentials of a ChatGPT account."""
    plan = plan_name(plan)
    return Credentials(
        kind,
        token,
        account_id=account_id,
        chatgpt_user_id=claims.user_id,
        is_workspace=plan in WORKSPACE_PLANS,
        is_fedramp=claims.is_fedramp,
        email=claims.email,
        plan=plan,
    )


def _is_sendable(credentials: Credentials) -> bool:
    account_id = credentials.account_id
    return is_sendable(credentials.token) and (account_id is None or is_sendable(account_id))


def _timestamp(now_ms: int) -> str:
    moment = datetime.fromtimestamp(now_ms / 1000, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
