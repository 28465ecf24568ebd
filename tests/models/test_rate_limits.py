"""turns: usage limits that a provider reports in the headers of its responses."""

from pathlib import Path
from typing import Any

import pytest

from app_server.models.client import MAX_LIMITS, MAX_TEXT_CHARS, rate_limits
from tests.support.harness import WireClient, serve
from tests.support.model import Refusal

PRIMARY = {
    "x-codex-primary-used-percent": "12.5",
    "x-codex-primary-window-minutes": "300",
    "x-codex-primary-reset-at": "1704069000",
}
CREDITS = {
    "x-codex-credits-has-credits": "true",
    "x-codex-credits-unlimited": "0",
    "x-codex-credits-balance": " 9.99 ",
}
UPDATED = "account/rateLimits/updated"


def read(headers: dict[str, str]) -> list[dict[str, Any]]:
    limits = rate_limits(headers)
    return [limit.model_dump(by_alias=True, exclude_none=True) for limit in limits]


def test_both_windows_the_name_and_the_credits_of_the_default_limit_are_read() -> None:
    secondary = {"x-codex-secondary-used-percent": "40", "x-codex-limit-name": "Lim"}
    assert read({**PRIMARY, **secondary, **CREDITS}) == [
        {
            "limitId": "codex",
            "limitName": "Lim",
            "primary": {"usedPercent": 13, "windowDurationMins": 300, "resetsAt": 1704069000},
            "secondary": {"usedPercent": 40},
            "credits": {"hasCredits": True, "unlimited": False, "balance": "9.99"},
        }
    ]


def test_other_limits_follow_the_default_one_by_their_names() -> None:
    others = {
        "X-Codex-Zebra-Primary-Used-Percent": "1",
        "x-codex-zebra-primary-used-percent": "1",
        "x-codex-fox-primary-used-percent": "80.6",
        "x-codex-fox-limit-name": "fox",
    }
    assert [(limit["limitId"], limit["primary"]) for limit in read({**others, **PRIMARY})] == [
        ("codex", {"usedPercent": 13, "windowDurationMins": 300, "resetsAt": 1704069000}),
        ("codex_fox", {"usedPercent": 81}),
        ("codex_zebra", {"usedPercent": 1}),
    ]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-codex-limit-name": "alone"},
        {"x-codex-primary-used-percent": "0", "x-codex-primary-window-minutes": "0"},
        {"x-codex-primary-used-percent": "NaN"},
        {"x-codex-primary-used-percent": "-1"},
        {"x-codex-primary-used-percent": "1e300"},
        {"x-codex-primary-used-percent": "much"},
        {"x-codex-credits-has-credits": "true"},
        {"x-codex-credits-has-credits": "true", "x-codex-credits-unlimited": "perhaps"},
        {"x-codex-rate-limit-reached-type": "unheard_of"},
        {"content-type": "text/event-stream"},
    ],
)
def test_headers_that_say_nothing_make_no_limit(headers: dict[str, str]) -> None:
    assert read(headers) == []


def test_what_cannot_be_read_is_left_out() -> None:
    headers = {
        "x-codex-primary-used-percent": "150.2",
        "x-codex-primary-window-minutes": "9" * 5000,
        "x-codex-primary-reset-at": "soon",
        "x-codex-limit-name": "n" * (MAX_TEXT_CHARS + 1),
    }
    assert read(headers) == [{"limitId": "codex", "primary": {"usedPercent": 150}}]


def test_there_is_a_bound_of_limits() -> None:
    headers = {f"x-limit{number:03}-primary-used-percent": "1" for number in range(100)}
    found = [limit["limitId"] for limit in read({**headers, **PRIMARY})]
    assert found == ["codex", *(f"limit{number:03}" for number in range(MAX_LIMITS - 1))]


async def limits_in_turn(client: WireClient, thread_id: str) -> list[tuple[str, Any]]:
    """Run a turn, and return the rate limits that it sent, and what came just before and after."""
    params = {"threadId": thread_id, "input": [{"type": "text", "text": "x"}]}
    await client.call("turn/start", params)
    messages = await client.until("turn/completed")
    watched = (UPDATED, "thread/tokenUsage/updated", "error")
    return [
        (message["method"], message["params"].get("rateLimits"))
        for message in messages
        if message["method"] in watched
    ]


async def test_rate_limits_are_sent_after_the_token_usage(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.response_headers = {**PRIMARY, "x-codex-fox-primary-used-percent": "2"}
        seen = await limits_in_turn(client, thread_id)
        assert [(method, limits and limits["limitId"]) for method, limits in seen] == [
            ("thread/tokenUsage/updated", None),
            (UPDATED, "codex"),
            (UPDATED, "codex_fox"),
        ]
        assert seen[1][1] == {
            "limitId": "codex",
            "limitName": None,
            "normalModelSlug": None,
            "primary": {"usedPercent": 13, "windowDurationMins": 300, "resetsAt": 1704069000},
            "secondary": None,
            "credits": None,
            "individualLimit": None,
            "spendControlReached": None,
            "planType": None,
            "rateLimitReachedType": None,
        }


async def test_a_response_without_such_headers_sends_no_limits(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        seen = await limits_in_turn(client, await client.start_thread())
        assert [method for method, _ in seen] == ["thread/tokenUsage/updated"]


async def test_the_limits_of_a_refusal_are_sent_before_its_error(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        body = {"error": {"type": "usage_limit_reached", "message": "no more"}}
        reached = {**PRIMARY, "x-codex-rate-limit-reached-type": "rate_limit_reached"}
        served.model.scripts = [Refusal(429, body, reached)]
        seen = await limits_in_turn(client, await client.start_thread())
        assert [method for method, _ in seen] == [UPDATED, "error"]
        assert seen[0][1]["rateLimitReachedType"] == "rate_limit_reached"


async def test_the_limits_of_a_compaction_are_sent_too(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "one")
        served.model.response_headers = PRIMARY
        await client.call("thread/compact/start", {"threadId": thread_id})
        messages = await client.until("turn/completed")
        assert UPDATED in [message["method"] for message in messages]
