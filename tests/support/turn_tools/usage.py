"""A model that reports usage which adds up, and the figures that a server should have of it."""

from collections.abc import Sequence
from typing import Any

LIST = {"name": "update_plan", "arguments": {"plan": [{"step": "one", "status": "pending"}]}}


def using(script: Sequence[Any], number: int, kind: str = "completed") -> list[Any]:
    """Let a script end with usage that no other number has."""
    usage = {
        "input_tokens": 1000 * number,
        "input_tokens_details": {"cached_tokens": 100 * number},
        "output_tokens": 10 * number,
        "output_tokens_details": {"reasoning_tokens": number},
        "total_tokens": 1010 * number,
    }
    response: dict[str, Any] = {"id": "r", "usage": usage}
    if kind == "incomplete":
        response["incomplete_details"] = {"reason": "max_output_tokens"}
    return [*script[:-1], {"type": f"response.{kind}", "response": response}]


def used(*numbers: int, unreported: int = 0) -> dict[str, Any]:
    """Return the figures of requests with these numbers, without their times."""
    total = sum(numbers)
    return {
        "inputTokens": 1000 * total,
        "cachedInputTokens": 100 * total,
        "outputTokens": 10 * total,
        "reasoningOutputTokens": total,
        "requests": len(numbers) + unreported,
        "unreportedRequests": unreported,
        "cost": [],
        "unpricedTokens": 1010 * total,
    }


def without_times(figures: dict[str, Any]) -> dict[str, Any]:
    """Return figures without their times, which are none below 0."""
    assert figures["modelMs"] >= 0
    assert figures["toolMs"] >= 0
    return {name: value for name, value in figures.items() if not name.endswith("Ms")}
