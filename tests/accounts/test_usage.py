"""account/rateLimits/read and account/usage/read against a hosted backend; getAuthStatus whole."""

import copy
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.accounts.account import keep, stored
from tests.support.accounts.issuer_peer import IssuerPeer, make_jwt
from tests.support.apps.chatgpt_peer import Asked, ChatgptPeer
from tests.support.harness import WireClient, claim, serve
from tests.support.large import Case, made

THREAD = "01a20303-9216-7750-834d-70cf19703048"
USAGE, CREDITS, PROFILE = "wham/usage", "wham/rate-limit-reset-credits", "wham/profiles/me"
OF_THREAD = "wham/usage/thread_usage/query"


def window(percent: int, seconds: int, reset_at: int) -> dict[str, int]:
    return {
        "used_percent": percent,
        "limit_window_seconds": seconds,
        "reset_after_seconds": 100,
        "reset_at": reset_at,
    }


ANSWER: dict[str, Any] = {
    "user_id": "u",
    "account_id": "acct-1",
    "email": "a@example.com",
    "plan_type": "pro",
    "rate_limit": {
        "allowed": True,
        "limit_reached": False,
        "primary_window": window(42, 18_000, 1_735_689_720),
        "secondary_window": window(5, 604_801, 1_735_693_200),
    },
    "code_review_rate_limit": None,
    "additional_rate_limits": [
        {
            "limit_name": "Other",
            "metered_feature": "codex_other",
            "normal_model_slug": "m",
            "rate_limit": {"primary_window": window(70, 900, 6), "secondary_window": None},
        }
    ],
    "credits": {"has_credits": True, "unlimited": False, "balance": "9.99"},
    "spend_control": {
        "reached": True,
        "individual_limit": {
            "limit": "100",
            "used": "20.5",
            "remaining": "79.5",
            "used_percent": 20,
            "remaining_percent": 80,
            "reset_after_seconds": 5,
            "reset_at": 123,
        },
    },
    "rate_limit_reached_type": {"type": "workspace_owner_credits_depleted"},
    "rate_limit_reset_credits": {"available_count": 2},
}
"""What Codex 0.169.0 was answered; what it made of that is below."""

MAIN = {
    "limitId": "codex",
    "limitName": None,
    "normalModelSlug": None,
    "primary": {"usedPercent": 42, "windowDurationMins": 300, "resetsAt": 1_735_689_720},
    "secondary": {"usedPercent": 5, "windowDurationMins": 10_081, "resetsAt": 1_735_693_200},
    "credits": {"hasCredits": True, "unlimited": False, "balance": "9.99"},
    "individualLimit": {"limit": "100", "used": "20.5", "remainingPercent": 80, "resetsAt": 123},
    "spendControlReached": True,
    "planType": "pro",
    "rateLimitReachedType": "workspace_owner_credits_depleted",
}
OTHER = {
    **dict.fromkeys(MAIN),
    "limitId": "codex_other",
    "limitName": "Other",
    "normalModelSlug": "m",
    "primary": {"usedPercent": 70, "windowDurationMins": 15, "resetsAt": 6},
    "planType": "pro",
}
LIMITS = {
    "ordinaryUsageAllowed": None,
    "rateLimits": MAIN,
    "rateLimitsByLimitId": {"codex": MAIN, "codex_other": OTHER},
    "rateLimitResetCredits": {"availableCount": 2, "credits": None},
    "accountId": "acct-1",
    "rateLimitUpsell": None,
}
NO_SUMMARY = {
    "lifetimeTokens": None,
    "peakDailyTokens": None,
    "longestRunningTurnSec": None,
    "currentStreakDays": None,
    "longestStreakDays": None,
}


@asynccontextmanager
async def signed_in(
    home: Path, monkeypatch: pytest.MonkeyPatch, **answers: Any
) -> AsyncIterator[tuple[ChatgptPeer, IssuerPeer, WireClient]]:
    """Run a hosted backend, an issuer, and a server with an account of ChatGPT."""
    async with ChatgptPeer().serve() as peer, IssuerPeer().serve() as issuer:
        issuer.use(monkeypatch)
        keep(home, issuer)
        flags = {"chatgpt_base_url": peer.url + "/"}
        async with serve(home, overrides=flags) as served, served.client() as client:
            peer.answers.update(answers)
            yield peer, issuer, client


def authorization(asked: Asked) -> str:
    return asked.headers["authorization"]


@claim("account:rate-limits")
async def test_limits_are_those_of_the_hosted_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with signed_in(tmp_path, monkeypatch) as (peer, _, client):
        peer.answers[USAGE] = [ANSWER]
        assert await client.call("account/rateLimits/read") == LIMITS
        assert sorted(peer.lines()) == [f"GET {CREDITS}", f"GET {USAGE}"]
        token = stored(tmp_path)["tokens"]["access_token"]
        assert {
            (authorization(asked), asked.headers["chatgpt-account-id"]) for asked in peer.asked
        } == {(f"Bearer {token}", "acct-1")}
        peer.asked.clear()
        lean = {"excludeResetCreditDetails": True, "supportsLunaReserve": True}
        assert await client.call("account/rateLimits/read", lean) == LIMITS
        assert peer.lines() == [f"GET {USAGE}"]
        assert peer.asked[0].headers["x-openai-codex-luna-reserve"] == "1"


async def test_credits_that_reset_limits_are_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = {
        "id": "c1",
        "reset_type": "codex_rate_limits",
        "status": "available",
        "granted_at": "2025-01-01T00:00:00Z",
        "expires_at": "2025-02-01T00:00:00+00:00",
        "title": "T",
        "description": "D",
    }
    odd = {
        "id": "c2",
        "reset_type": "odd",
        "status": "odd",
        "granted_at": "2025-01-01T01:00:00+01:00",
    }
    async with signed_in(tmp_path, monkeypatch) as (peer, _, client):
        peer.answers[USAGE] = [ANSWER]
        peer.answers[CREDITS] = [{"available_count": 1, "credits": [one, odd]}]
        read = await client.call("account/rateLimits/read")
        unknown = {"resetType": "unknown", "status": "unknown", "grantedAt": 1_735_689_600}
        assert read["rateLimitResetCredits"] == {
            "availableCount": 1,
            "credits": [
                {
                    "id": "c1",
                    "resetType": "codexRateLimits",
                    "status": "available",
                    "grantedAt": 1_735_689_600,
                    "expiresAt": 1_738_368_000,
                    "title": "T",
                    "description": "D",
                },
                {**unknown, "id": "c2", "expiresAt": None, "title": None, "description": None},
            ],
        }
        # Details that make no sense leave the count.
        peer.answers[CREDITS] = [{"available_count": 1, "credits": [{**one, "granted_at": 5}]}]
        assert await client.call("account/rateLimits/read") == LIMITS


@claim("account:usage")
async def test_use_of_tokens_is_that_of_the_hosted_backend(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    days = [{"start_date": "2025-01-01", "tokens": 5}]
    stats = {"lifetime_tokens": 1000, "longest_streak_days": 9, "daily_usage_buckets": days}
    group = {
        "model": "m",
        "reasoning_effort": "high",
        "speed": "fast",
        "estimated_usage_credits_micros": 5,
        "net_new_input_tokens": 3,
        "cached_input_tokens": 2,
        "input_tokens": 1,
        "output_tokens": 4,
        "total_tokens": 9,
    }
    used = {"thread_id": THREAD, "estimated_usage_credits_micros": 7, "groups": [group]}
    async with signed_in(tmp_path, monkeypatch) as (peer, _, client):
        peer.answers[PROFILE] = [{"profile": {"username": "a"}, "stats": stats}]
        assert await client.call("account/usage/read") == {
            "summary": {**NO_SUMMARY, "lifetimeTokens": 1000, "longestStreakDays": 9},
            "dailyUsageBuckets": [{"startDate": "2025-01-01", "tokens": 5}],
            "threadUsage": None,
        }
        assert peer.lines() == [f"GET {PROFILE}"]
        peer.asked.clear()
        peer.answers[OF_THREAD] = [{"threads": [used]}, 403, 404]
        asked = {"threadId": THREAD}
        assert await client.call("account/usage/read", asked) == {
            "summary": NO_SUMMARY,
            "dailyUsageBuckets": None,
            "threadUsage": {
                "threadId": THREAD,
                "estimatedUsageCreditsMicros": 7,
                "estimatedUsageUsdMicros": None,
                "nativeUsageUsdMicros": None,
                "groups": [
                    {
                        "model": "m",
                        "reasoningEffort": "high",
                        "speed": "fast",
                        "estimatedUsageCreditsMicros": 5,
                        "netNewInputTokens": 3,
                        "cachedInputTokens": 2,
                        "inputTokens": 1,
                        "outputTokens": 4,
                        "totalTokens": 9,
                    }
                ],
            },
        }
        assert peer.asked[0].body == {"thread_ids": [THREAD]}
        for _ in ("403", "404"):
            # The account may not know what this thread has used.
            unknown = await client.call("account/usage/read", asked)
            assert (unknown["summary"], unknown["threadUsage"]) == (NO_SUMMARY, None)
        refused = await client.refusal("account/usage/read", {"threadId": "nope"})
        assert (refused.message, refused.data["code"]) == (
            "invalid thread id: nope",
            "invalidThreadId",
        )


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (500, "the hosted backend answered 500 Internal Server Error"),
        (403, "the hosted backend answered 403 Forbidden"),
        (302, "the hosted backend answered 302 Found"),
        (b"secret", "the hosted backend's answer makes no sense: Invalid JSON: expected value"),
        ({}, "the hosted backend's answer makes no sense: `plan_type`: Field required"),
        (
            {**ANSWER, "rate_limit": {"primary_window": {"used_percent": 1.5}}},
            "the hosted backend's answer makes no sense: `rate_limit.primary_window.used_percent`: "
            "Input should be a valid integer",
        ),
        (
            {**ANSWER, "additional_rate_limits": [{"metered_feature": "x"}] * 65},
            "the hosted backend's answer makes no sense: `additional_rate_limits`: List should "
            "have at most 64 items after validation, not 65",
        ),
        (lambda: b" " * (256 * 1024 + 1), "an answer is larger than 262144 bytes"),
    ],
)
async def test_an_answer_that_is_none_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Case[Any], problem: str
) -> None:
    async with signed_in(tmp_path, monkeypatch) as (peer, _, client):
        peer.answers[USAGE] = [made(answer)]
        refused = await client.refusal("account/rateLimits/read")
        assert (refused.code, refused.data) == (-32603, {"code": "backendFailed"})
        assert refused.message.startswith(f"failed to fetch codex rate limits: {problem}")
        assert "secret" not in refused.message


async def test_a_token_that_the_backend_refuses_is_renewed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with signed_in(tmp_path, monkeypatch) as (peer, issuer, client):
        old = stored(tmp_path)["tokens"]["access_token"]
        issuer.access_claims = {**issuer.access_claims, "renewed": True}
        peer.answers[PROFILE] = [401, {"stats": {}}]
        read = await client.call("account/usage/read")
        assert read["summary"] == NO_SUMMARY
        new = stored(tmp_path)["tokens"]["access_token"]
        assert [authorization(asked) for asked in peer.asked] == [f"Bearer {old}", f"Bearer {new}"]
        assert old != new
        peer.answers[PROFILE] = [401]
        refused = await client.refusal("account/usage/read")
        assert refused.message == (
            "failed to fetch token usage profile: the hosted backend answered 401 Unauthorized"
        )


async def test_another_backend_than_chatgpts_has_other_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ChatgptPeer().serve() as peer, IssuerPeer().serve() as issuer:
        issuer.use(monkeypatch)
        keep(tmp_path, issuer)
        flags = {"chatgpt_base_url": peer.url.removesuffix("/backend-api")}
        async with serve(tmp_path, overrides=flags) as served, served.client() as client:
            peer.answers["/api/codex/profiles/me"] = [{"stats": {}}]
            read = await client.call("account/usage/read")
            assert (read["summary"], peer.lines()) == (NO_SUMMARY, ["GET /api/codex/profiles/me"])


async def test_a_token_is_not_sent_where_others_could_read_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with IssuerPeer().serve() as issuer:
        issuer.use(monkeypatch)
        keep(tmp_path, issuer)
        flags = {"chatgpt_base_url": "http://example.com/backend-api"}
        async with serve(tmp_path, overrides=flags) as served, served.client() as client:
            refused = await client.refusal("account/rateLimits/read")
            assert refused.message == (
                "failed to fetch codex rate limits: an address of the hosted backend is neither "
                "https nor on this machine"
            )


# getAuthStatus, for every account and every combination of members. What is expected is what
# Codex 0.169.0 answered in the same home.

KEY = {"auth_mode": "apikey", "OPENAI_API_KEY": "sk-x"}
TOKENS = {
    "id_token": make_jwt(exp=4_000_000_000),
    "access_token": make_jwt(exp=4_000_000_000),
    "refresh_token": "r",
    "account_id": "acct-1",
}
CHATGPT = {"auth_mode": "chatgpt", "tokens": TOKENS, "last_refresh": "2026-11-21T06:52:10Z"}
WITHOUT_MODE = {"OPENAI_API_KEY": "sk-both", "tokens": TOKENS}
OPENAI = 'model_provider = "openai"\n'
OTHERS = '[model_providers.p]\nname = "p"\nbase_url = "http://127.0.0.1:1"\n'
OF_OTHERS = 'model_provider = "p"\n' + OTHERS
WITH_ACCOUNT = OF_OTHERS + "requires_openai_auth = true\n"


@claim("account:auth-status")
@pytest.mark.parametrize(
    ("auth", "config", "method", "token", "required"),
    [
        (None, OPENAI, None, None, True),
        (None, "", None, None, True),
        (KEY, OPENAI, "apikey", "sk-x", True),
        (CHATGPT, OPENAI, "chatgpt", TOKENS["access_token"], True),
        (WITHOUT_MODE, OPENAI, "apikey", "sk-both", True),
        ("{", OPENAI, None, None, True),
        (KEY, OF_OTHERS, None, None, False),
        (None, OF_OTHERS, None, None, False),
        (KEY, WITH_ACCOUNT, "apikey", "sk-x", True),
        (None, WITH_ACCOUNT, None, None, True),
        (CHATGPT, 'forced_login_method = "api"\n' + OPENAI, None, None, True),
        (KEY, 'forced_login_method = "chatgpt"\n' + OPENAI, None, None, True),
    ],
)
async def test_the_older_status_says_how_the_server_signs_in(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    auth: Any,
    config: str,
    method: str | None,
    token: str | None,
    required: bool,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    # A forced renewal that cannot work changes nothing.
    monkeypatch.setenv("CODEX_REFRESH_TOKEN_URL_OVERRIDE", "http://127.0.0.1:1/token")
    async with serve(tmp_path) as served, served.client() as client:
        if auth is not None:
            text = auth if isinstance(auth, str) else json.dumps(auth)
            (tmp_path / "auth.json").write_text(text)
        (tmp_path / "config.toml").write_text(config)
        for include in (None, False, True):
            for renew in (None, False, True):
                given = {"includeToken": include, "refreshToken": renew}
                params = {name: value for name, value in given.items() if value is not None}
                assert await client.call("getAuthStatus", copy.deepcopy(params)) == {
                    "authMethod": method,
                    "authToken": token if include else None,
                    "requiresOpenaiAuth": required,
                }
