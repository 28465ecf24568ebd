"""Credentials of the signed-in account, and claims of its tokens."""

import base64
import binascii
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from pydantic_core import from_json

MAX_TOKEN_CHARS = 64 * 1024

_SENDABLE = re.compile(rf"[\x20-\x7e]{{1,{MAX_TOKEN_CHARS}}}")

Kind: TypeAlias = Literal["apikey", "chatgpt", "chatgptAuthTokens"]

RefreshReason: TypeAlias = Literal["forced", "proactive", "unauthorized_recovery"]
"""Why new tokens are asked for."""


def is_sendable(text: str) -> bool:
    """Whether a text can stand in a header; others would come back in errors of libraries."""
    return _SENDABLE.fullmatch(text) is not None and not text.isspace()


@dataclass(frozen=True, slots=True)
class Credentials:
    """One account, with the token that is good for it now."""

    kind: Kind
    token: str = field(repr=False)
    """Bearer token: an API key, or an access token."""
    account_id: str | None = None
    """Workspace; None for an API key, and where the issuer did not say."""
    chatgpt_user_id: str | None = None
    is_workspace: bool = False
    """Whether the account belongs to an organization."""
    is_fedramp: bool = False
    email: str | None = field(default=None, repr=False)
    plan: str | None = None
    """Plan as the wire names it; None for an API key."""

    @property
    def is_chatgpt(self) -> bool:
        """Whether the account is one of ChatGPT's."""
        return self.kind != "apikey"

    def is_same_account(self, other: "Credentials") -> bool:
        """Whether the same user of the same account is signed in, in the same way."""
        return replace(self, token=other.token, email=other.email, plan=other.plan) == other

    def headers(self) -> dict[str, str]:
        """Make the headers of a request on behalf of the account."""
        headers = {"authorization": f"Bearer {self.token}"}
        if self.is_chatgpt and self.account_id is not None:
            headers["chatgpt-account-id"] = self.account_id
        if self.is_fedramp:
            headers["x-openai-fedramp"] = "true"
        return headers


@dataclass(frozen=True, slots=True)
class AuthState:
    """Credentials and their revision, read together."""

    credentials: Credentials | None = None
    """None means signed out."""
    revision: int = 0
    """Grows with every change of the credentials: sign-in, sign-out, another account or token."""
    sign_in: int = 0
    """Grows with every change but another token of the account."""


AUTH_CLAIM = "https://api.openai.com/auth"
PROFILE_CLAIM = "https://api.openai.com/profile"

WORKSPACE_PLANS = frozenset(
    {
        "team",
        "self_serve_business_prolite",
        "self_serve_business_usage_based",
        "business",
        "ent26",
        "enterprise_cbp_automation",
        "enterprise_cbp_usage_based",
        "enterprise",
        "edu",
        "edu_plus",
        "edu_pro",
    }
)
PERSONAL_PLANS = frozenset({"free", "go", "plus", "pro", "prolite", "promax", "sci", "sci_plus"})
PLAN_ALIASES = {"hc": "enterprise", "education": "edu"}
UNKNOWN_PLAN = "unknown"


class InvalidToken(Exception):
    """Invalid token: no JWT, or one without claims."""


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims that matter here."""

    email: str | None = field(default=None, repr=False)
    plan: str | None = None
    user_id: str | None = None
    account_id: str | None = None
    is_fedramp: bool = False
    expires_at: int | None = None
    """Unix seconds."""


def read_claims(token: str) -> Claims:
    """Read a JWT.

    Raises:
        InvalidToken: it is none.
    """
    payload = _payload(token)
    auth, profile = _table(payload, AUTH_CLAIM), _table(payload, PROFILE_CLAIM)
    expires_at = payload.get("exp")
    return Claims(
        email=text_member(payload, "email") or text_member(profile, "email"),
        plan=text_member(auth, "chatgpt_plan_type"),
        user_id=text_member(auth, "chatgpt_user_id") or text_member(auth, "user_id"),
        account_id=text_member(auth, "chatgpt_account_id"),
        is_fedramp=auth.get("chatgpt_account_is_fedramp") is True,
        expires_at=int(expires_at) if isinstance(expires_at, int | float) else None,
    )


def claims_of(token: str | None) -> Claims | None:
    """Read a text that should be a JWT; None for one that is none."""
    try:
        return None if token is None else read_claims(token)
    except InvalidToken:
        return None


def plan_name(raw: str | None) -> str:
    """Name a plan as the wire does."""
    plan = PLAN_ALIASES.get(raw or "", raw or "")
    return plan if plan in PERSONAL_PLANS or plan in WORKSPACE_PLANS else UNKNOWN_PLAN


def _payload(token: str) -> dict[str, Any]:
    parts = token.split(".")
    if len(parts) < 3 or not all(parts[:3]):
        raise InvalidToken("invalid ID token format")
    try:
        padded = parts[1] + "=" * (-len(parts[1]) % 4)
        payload = from_json(base64.b64decode(padded, altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        raise InvalidToken("invalid ID token format") from None
    if not isinstance(payload, dict):
        raise InvalidToken("invalid ID token format")
    return payload


def _table(payload: dict[str, Any], key: str) -> dict[str, Any]:
    value = payload.get(key)
    return value if isinstance(value, dict) else {}


def text_member(table: Mapping[str, Any], key: str) -> str | None:
    """Return a text of an object; None for an empty one, or another value."""
    value = table.get(key)
    return value if isinstance(value, str) and value else None
