"""A model that reports usage which adds up, and the figures that a server should have of it."""

from collections.abc import Sequence
from typing import Any

from pydantic_core import to_json

from app_server.turns.usage.budgets import MAX_OUTPUT_TOKENS
from tests.support.harness import WireClient
from tests.support.model import BREAK, Gate, ScriptedModel, calls, says
from tests.support.turns import start_turn, text_input

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
    return _ending(script, usage, kind)


def counted(script: Sequence[Any], given: int, out: int) -> list[Any]:
    """Let a script end with these tokens in and out."""
    usage = {"input_tokens": given, "output_tokens": out, "total_tokens": given + out}
    return _ending(script, usage, "completed")


def bytes_of(request: dict[str, Any]) -> int:
    """Count the bytes of what a model reads of a request: no model counts more tokens."""
    parts = [request["instructions"], request["tools"], request.get("text"), *request["input"]]
    return sum(len(to_json(part)) for part in parts)


def _ending(script: Sequence[Any], usage: dict[str, Any], kind: str) -> list[Any]:
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


LIMIT = 60_000
HOME = f"""
[budget.home]
tokens = {LIMIT}
"""
TOKENS = 1010
"""Of each response of `small`; the first request of a thread has more bytes of input."""


def small(_: Any) -> Sequence[Any]:
    """Answer any request with TOKENS."""
    return using(says("ok"), 1)


LARGE_LIMIT = 2_000_000
LARGE = HOME.replace(str(LIMIT), str(LARGE_LIMIT))
"""A budget of a home for threads whose model is `dearest`."""
LONG_TEXT = "new " * 2_000
"""Input of their turns: more tokens than four bytes for each would make."""


def dearest(request: dict[str, Any]) -> list[Any]:
    """Answer with the most that any model may count: a token a byte, and all the room there is."""
    bound = request["max_output_tokens"]
    return counted(says("ok"), bytes_of(request), bound if bound < MAX_OUTPUT_TOKENS else 100)


async def until_stopped(client: WireClient, thread_id: str, text: str = "go") -> tuple[int, str]:
    """Have turns in a thread until one is stopped; returns how many were not, and why."""
    turns = 0
    while True:
        turn = await client.turn(thread_id, text)
        if turn["status"] != "completed":
            assert turn["error"]["codexErrorInfo"] == "budgetExceeded"
            return turns, turn["error"]["message"]
        turns += 1


RETRYING = {"model_providers": {"scripted": {"stream_max_retries": 2}}}
"""Settings of a thread for `requests_of_all_kinds`."""


async def requests_of_all_kinds(
    client: WireClient, model: ScriptedModel, thread_id: str
) -> tuple[str, str]:
    """Have requests with the numbers from 1 to 6, and two whose usage the model does not report.

    One is sent again, one is steered away from, one compacts, two review. Returns the turns of the
    first two kinds.
    """
    # A turn of two requests, one of which is sent again.
    model.scripts += [
        using(calls(LIST), 1),
        [*says("cut")[:2], BREAK],
        using(says("done"), 2),
    ]
    first = await client.turn(thread_id, "one")
    # One that is steered away from an answer that has no usage yet.
    gate = Gate()
    model.scripts += [[*says("more")[:2], gate, *says("more")[2:]], using(says("then"), 3)]
    turn_id = await start_turn(client, thread_id, "two")
    await gate.wait_until_reached()
    steering = {"threadId": thread_id, "expectedTurnId": turn_id, "input": text_input("new")}
    await client.call("turn/steer", steering)
    await client.wait_for("turn/completed")
    gate.opened.set()
    # A compaction, and a review.
    model.scripts += [using(says("sum"), 4), using(calls(LIST), 5), using(says("fine"), 6)]
    await client.call("thread/compact/start", {"threadId": thread_id})
    await client.wait_for("turn/completed")
    review = {"threadId": thread_id, "target": {"type": "uncommittedChanges"}}
    await client.call("review/start", review)
    await client.wait_for("turn/completed")
    return first["id"], turn_id
