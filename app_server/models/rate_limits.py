"""Usage limits of the account, as a model provider reports them in the headers of its responses.

Headers of one limit begin with `x-` and its id: `x-codex-primary-used-percent`,
`…-primary-window-minutes`, `…-primary-reset-at` (Unix seconds), the same with `secondary`, and
`x-codex-limit-name`. A response may report further limits (`x-codex-other-primary-used-percent`);
credits (`x-codex-credits-*`) are the account's.

Source: docs/accounts.md, "Usage limits".
"""

import math
import re
from collections.abc import Mapping, Sequence

from protocol.server.account import (
    CreditsSnapshot,
    RateLimitSnapshot,
    RateLimitWindow,
)

MAX_LIMITS = 16
"""Of one response; more are passed over."""
MAX_TEXT_CHARS = 256
"""Of a name or a balance; longer ones are passed over."""

_USED = "-primary-used-percent"
_FAMILY = re.compile(rf"x-([a-z0-9-]{{1,64}}){_USED}")
_DEFAULT = "codex"
_INTEGER = re.compile(r"-?[0-9]{1,15}")
_REACHED = frozenset(
    {
        "rate_limit_reached",
        "workspace_owner_credits_depleted",
        "workspace_member_credits_depleted",
        "workspace_owner_usage_limit_reached",
        "workspace_member_usage_limit_reached",
    }
)
_TRUTHS = {"true": True, "1": True, "false": False, "0": False}


def rate_limits(headers: Mapping[str, str]) -> Sequence[RateLimitSnapshot]:
    """Read the limits that a response reports, the default one first; none where it reports none.

    `headers` has names in lower case, or finds them whatever their case. What cannot be read is
    left out: a model call does not fail for it.
    """
    others = {match[1] for name in headers if (match := _FAMILY.fullmatch(name.lower()))}
    families = [_DEFAULT, *sorted(others - {_DEFAULT})[: MAX_LIMITS - 1]]
    return [limit for family in families if (limit := _limit(headers, family)) is not None]


def _limit(headers: Mapping[str, str], family: str) -> RateLimitSnapshot | None:
    limit = RateLimitSnapshot(
        limit_id=family.replace("-", "_"),
        limit_name=_text(headers, f"x-{family}-limit-name"),
        primary=_window(headers, f"x-{family}-primary"),
        secondary=_window(headers, f"x-{family}-secondary"),
        credits=_credits(headers),
        rate_limit_reached_type=_reached(headers) if family == _DEFAULT else None,
    )
    parts = limit.primary, limit.secondary, limit.rate_limit_reached_type
    has_credits = family == _DEFAULT and limit.credits is not None
    return limit if has_credits or any(part is not None for part in parts) else None


def _window(headers: Mapping[str, str], prefix: str) -> RateLimitWindow | None:
    try:
        used = float(headers.get(f"{prefix}-used-percent", ""))
    except ValueError:
        return None
    if not 0 <= used < 2**31:
        return None
    minutes = _integer(headers, f"{prefix}-window-minutes")
    resets_at = _integer(headers, f"{prefix}-reset-at")
    if not used and not minutes and resets_at is None:
        # A provider without this limit sends zeros.
        return None
    return RateLimitWindow(
        used_percent=math.floor(used + 0.5), window_duration_mins=minutes, resets_at=resets_at
    )


def _credits(headers: Mapping[str, str]) -> CreditsSnapshot | None:
    has_credits = _TRUTHS.get(headers.get("x-codex-credits-has-credits", "").lower())
    unlimited = _TRUTHS.get(headers.get("x-codex-credits-unlimited", "").lower())
    if has_credits is None or unlimited is None:
        return None
    return CreditsSnapshot(
        has_credits=has_credits,
        unlimited=unlimited,
        balance=_text(headers, "x-codex-credits-balance"),
    )


def _reached(headers: Mapping[str, str]) -> str | None:
    word = headers.get("x-codex-rate-limit-reached-type", "")
    return word if word in _REACHED else None


def _integer(headers: Mapping[str, str], name: str) -> int | None:
    text = headers.get(name, "")
    return int(text) if _INTEGER.fullmatch(text) else None


def _text(headers: Mapping[str, str], name: str) -> str | None:
    text = headers.get(name, "").strip()
    return text if text and len(text) <= MAX_TEXT_CHARS else None
