"""What a token says about its account.

Signatures are not checked: tokens come straight from the issuer, or from the user's own file, and
what they say decides what is shown, not what is allowed.
Source: RFC 7519; OpenID Connect Core, section 3.1.3.7 (6).
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

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
    """A token that is no JWT, or says nothing."""


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
