"""Budgets: what is counted, and no request that might pass one."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from app_server.sessions.turn import MORE_BUDGET, OUT_OF_BUDGET
from app_server.turns.usage.budgets import MAX_OUTPUT_TOKENS, UNBOUNDED_TOKENS
from tests.support.harness import WireClient, claim, serve, write_config
from tests.support.model import Refusal, ScriptedModel, calls, says
from tests.support.processes import running
from tests.support.turn_tools.usage import LIST, used, using, without_times
from tests.support.turns import start_turn

EXCEEDED = "budgetExceeded"


def limits(**given: Any) -> dict[str, Any]:
    return {"tokens": None, "cost": None, "turns": None, "seconds": None, **given}


async def ended(client: WireClient, thread_id: str) -> tuple[list[Any], Any]:
    """Wait for the end of a turn; returns what was told of budgets, and the turn."""
    told = []
    while True:
        message = await client.receive()
        params = message.get("params", {})
        if message.get("method") == "thread/budget/updated":
            told.append((params["threshold"], params["exceeded"], params["budget"]["percent"]))
        if message.get("method") == "turn/completed" and params["threadId"] == thread_id:
            return told, params["turn"]


@claim("budgets:stop", "budgets:told", "budgets:goes-on")
async def test_a_turn_ends_before_it_passes_its_budget_and_goes_on_with_more(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        model = served.model
        thread_id = await client.start_thread(budget={"tokens": 100_000})
        model.scripts += [using(calls(LIST), 35), using(calls(LIST), 35)]
        await start_turn(client, thread_id, "one")
        told, turn = await ended(client, thread_id)
        assert told == [(50, False, 70), (None, True, 70)]
        assert (turn["status"], turn["error"]["codexErrorInfo"]) == ("interrupted", EXCEEDED)
        assert "70700 of 100000 tokens are used" in turn["error"]["message"]
        assert len(model.requests) == 2
        # Nothing that waits begins meanwhile, and no input makes a request.
        queued = {"threadId": thread_id, "input": [{"type": "text", "text": "queued"}]}
        await client.call("thread/queue/add", {**queued, "clientUserMessageId": "q"})
        await start_turn(client, thread_id, "two")
        assert (await ended(client, thread_id))[0] == [(None, True, 70)]
        assert len(model.requests) == 2
        (row,) = (await client.call("usage/read", {"threadId": thread_id}))["data"]
        assert without_times(row["usage"]) == used(35, 35)

        params = {"threadId": thread_id, "budget": {"tokens": 200_000}}
        answer = await client.call("thread/budget/set", params)
        assert answer["budget"] == {
            "limits": limits(tokens=200_000),
            "used": {
                "tokens": 70_700,
                "cost": [],
                "turns": 1,
                "seconds": answer["budget"]["used"]["seconds"],
            },
            "percent": 35,
        }
        told, turn = await ended(client, thread_id)
        assert (told, turn["status"], turn["error"]) == ([(None, False, 35)], "completed", None)
        assert model.inputs()[-4:] == [
            ("developer", OUT_OF_BUDGET),
            ("user", "two"),
            ("developer", OUT_OF_BUDGET),
            ("developer", MORE_BUDGET),
        ]
        # Then what was queued.
        assert (await ended(client, thread_id))[1]["status"] == "completed"
        assert model.inputs()[-1] == ("user", "queued")


@claim("budgets:bound")
async def test_a_response_has_the_room_that_is_left_and_no_more(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        model = served.model
        thread_id = await client.start_thread(budget={"tokens": 190_000})
        model.scripts.append(using(says("one"), 80))
        await client.turn(thread_id, "one")
        assert model.requests[-1]["max_output_tokens"] == MAX_OUTPUT_TOKENS
        model.scripts.append(using(says("two"), 30, "incomplete"))
        turn = await client.turn(thread_id, "two")
        left = model.requests[-1]["max_output_tokens"]
        # The input has what was counted last, and no more than the bytes of the new messages.
        assert 190_000 - 80_800 - 80_000 - 300 < left < 190_000 - 80_800 - 80_000
        assert (turn["status"], turn["error"]["codexErrorInfo"]) == ("interrupted", EXCEEDED)
        assert f"room for {left} tokens" in turn["error"]["message"]
        other = await client.start_thread()
        await client.turn(other, "no budget")
        assert "max_output_tokens" not in model.requests[-1]


REFUSED = Refusal(400, {"detail": "Unsupported parameter: max_output_tokens"})
TOO_MUCH = Refusal(
    400,
    {
        "error": {
            "message": "This model's maximum context length is 8192 tokens. However, you requested "
            "32868 tokens (100 in the messages, 32768 in the completion).",
            "code": 400,
        }
    },
)


def failing(kind: str, **error: Any) -> list[Any]:
    """Refuse in a stream that has begun with success."""
    if kind == "error":
        return [{"type": "error", **error}]
    return [{"type": "response.failed", "response": {"id": "r", "error": error}}]


UNSUPPORTED = "Unsupported parameter: 'max_output_tokens' is not supported with this model."


@claim("budgets:unbounded")
@pytest.mark.parametrize(
    "refusal",
    [
        REFUSED,
        TOO_MUCH,
        failing("response.failed", code="unsupported_parameter", message=UNSUPPORTED),
        failing("error", code=400, message="bad request", param="max_output_tokens"),
        failing("response.failed", **TOO_MUCH.body["error"]),
    ],
)
async def test_a_provider_that_refuses_a_bound_needs_room_for_the_longest_response(
    tmp_path: Path, refusal: Refusal | list[Any]
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        model = served.model
        thread_id = await client.start_thread(budget={"tokens": 200_000})
        model.scripts += [refusal, using(says("one"), 30)]
        assert (await client.turn(thread_id, "one"))["status"] == "completed"
        bounds = [request.get("max_output_tokens") for request in model.requests]
        assert bounds == [MAX_OUTPUT_TOKENS, None]
        # That is known from then on, of all threads and of compactions.
        model.scripts.append(using(says("a summary"), 1))
        await client.call("thread/compact/start", {"threadId": thread_id})
        assert (await ended(client, thread_id))[1]["error"] is None
        assert "max_output_tokens" not in model.requests[2]
        await client.turn(thread_id, "two")
        other = await client.start_thread(budget={"tokens": UNBOUNDED_TOKENS})
        turn = (await ended_turn(client, other, "no room"))[1]
        assert turn["error"]["codexErrorInfo"] == EXCEEDED
        assert "for which the provider takes no bound" in turn["error"]["message"]
        assert len(model.requests) == 4


@claim("budgets:unbounded")
async def test_a_limit_of_usage_that_names_the_bound_is_no_refusal_of_it(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        limited = {"code": "rate_limit_exceeded", "message": "lower max_output_tokens"}
        served.model.scripts += [failing("response.failed", **limited), says("one")]
        retrying = {"model_providers": {"scripted": {"stream_max_retries": 1}}}
        thread_id = await client.start_thread(budget={"tokens": 200_000}, config=retrying)
        assert (await client.turn(thread_id, "one"))["status"] == "completed"
        bounds = [request.get("max_output_tokens") for request in served.model.requests]
        assert bounds == [MAX_OUTPUT_TOKENS] * 2


@claim("budgets:unbounded")
async def test_a_compaction_and_a_review_are_sent_again_without_a_bound(tmp_path: Path) -> None:
    for method, params in (
        ("thread/compact/start", {}),
        ("review/start", {"target": {"type": "custom", "instructions": "look"}}),
    ):
        home = tmp_path / params.get("target", {"type": "none"})["type"]
        async with serve(home) as served, served.client() as client:
            model = served.model
            thread_id = await client.start_thread()
            await client.turn(thread_id, "one")
            budget = {"threadId": thread_id, "budget": {"tokens": 200_000}}
            await client.call("thread/budget/set", budget)
            model.scripts += [TOO_MUCH, says("a text")]
            await client.call(method, {"threadId": thread_id, **params})
            assert (await ended(client, thread_id))[1]["error"] is None
            bounds = [request.get("max_output_tokens") for request in model.requests]
            assert bounds == [None, MAX_OUTPUT_TOKENS, None]
            assert model.requests[1]["input"] == model.requests[2]["input"]


async def test_a_refusal_of_what_a_request_did_not_have_is_final(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        served.model.scripts.append(REFUSED)
        turn = await client.turn(await client.start_thread(), "one")
        assert turn["error"]["codexErrorInfo"] == "badRequest"
        assert len(served.model.requests) == 1


PRICES = """
[model_prices.scripted]
in = 1
out = 2
currency = "USD"
"""


@claim("budgets:cost")
async def test_a_budget_of_money_holds_and_needs_a_price(tmp_path: Path) -> None:
    async with serve(tmp_path, config=PRICES) as served, served.client() as client:
        model = served.model
        cost = {"currency": "USD", "amount": "0.2"}
        thread_id = await client.start_thread(budget={"cost": cost})
        model.scripts += [using(says("one"), 100)]
        await client.turn(thread_id, "one")
        told, turn = await ended_turn(client, thread_id, "two")
        assert (told, turn["error"]["codexErrorInfo"]) == ([(None, True, 51)], EXCEEDED)
        assert "0.102 of 0.2 USD are used" in turn["error"]["message"]
        assert len(model.requests) == 1
        # What nobody has a price for is not sent.
        other = await client.start_thread(model="free", budget={"cost": cost})
        turn = (await ended_turn(client, other, "one"))[1]
        assert "`free` has no price in USD" in turn["error"]["message"]
        euros = {"cost": {"currency": "EUR", "amount": "1"}}
        third = await client.start_thread(budget=euros)
        turn = (await ended_turn(client, third, "one"))[1]
        assert "`scripted` has no price in EUR" in turn["error"]["message"]
        assert len(model.requests) == 1


async def ended_turn(client: WireClient, thread_id: str, text: str) -> tuple[list[Any], Any]:
    await start_turn(client, thread_id, text)
    return await ended(client, thread_id)


@claim("budgets:turns")
async def test_a_budget_of_turns_counts_turns_that_ask_a_model(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(budget={"turns": 2})
        served.model.scripts += [calls(LIST), says("one")]
        assert (await ended_turn(client, thread_id, "one"))[0] == [(50, False, 50)]
        assert (await ended_turn(client, thread_id, "two"))[0] == [(100, False, 100)]
        told, turn = await ended_turn(client, thread_id, "three")
        assert (told, turn["error"]["message"]) == (
            [(None, True, 100)],
            "the budget of the thread is used up: all 2 turns are used",
        )
        # So do compactions and reviews.
        await client.call("thread/compact/start", {"threadId": thread_id})
        assert (await ended(client, thread_id))[1]["error"]["codexErrorInfo"] == EXCEEDED
        review = {"threadId": thread_id, "target": {"type": "uncommittedChanges"}}
        await client.call("review/start", review)
        assert (await ended(client, thread_id))[1]["error"]["codexErrorInfo"] == EXCEEDED
        assert len(served.model.requests) == 3
        cleared = await client.call("thread/budget/set", {"threadId": thread_id, "budget": None})
        assert cleared == {"budget": None}
        assert (await client.wait_for("turn/completed"))["params"]["turn"]["status"] == "completed"


@claim("budgets:turns")
async def test_tokens_of_reviews_and_compactions_count_for_the_budget_of_their_thread(
    tmp_path: Path,
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        model = served.model
        thread_id = await client.start_thread(budget={"tokens": 130_000})
        model.scripts += [using(says(text), 30) for text in ("one", "a review", "a summary")]
        await client.turn(thread_id, "one")
        review = {"threadId": thread_id, "target": {"type": "custom", "instructions": "look"}}
        # There are no reviews in threads of their own: they would not count for this one.
        error = await client.refusal("review/start", {**review, "delivery": "detached"})
        assert error.data["field"] == "delivery"
        await client.call("review/start", review)
        assert (await ended(client, thread_id))[1]["error"] is None
        await client.call("thread/compact/start", {"threadId": thread_id})
        assert (await ended(client, thread_id))[1]["error"] is None
        kept = (await client.call("thread/budget/set", {"threadId": thread_id}))["budget"]
        assert kept["used"]["tokens"] == 3 * 30_300
        params = {"threadId": thread_id, "groupBy": "origin"}
        rows = (await client.call("usage/read", params))["data"]
        assert {row["group"]: row["usage"]["requests"] for row in rows} == {
            "user": 1,
            "review": 1,
            "compaction": 1,
        }
        # With no room left none of them asks its model.
        await client.call(
            "thread/budget/set", {"threadId": thread_id, "budget": {"tokens": 91_000}}
        )
        await client.call("review/start", review)
        assert (await ended(client, thread_id))[1]["error"]["codexErrorInfo"] == EXCEEDED
        await client.call("thread/compact/start", {"threadId": thread_id})
        assert (await ended(client, thread_id))[1]["error"]["codexErrorInfo"] == EXCEEDED
        assert len(model.requests) == 3


@claim("budgets:crash")
async def test_a_budget_survives_the_death_of_the_server(tmp_path: Path) -> None:
    async with ScriptedModel().serve() as model:
        write_config(tmp_path, model.url)
        async with running(tmp_path) as server, server.client() as client:
            thread_id = await client.start_thread(budget={"tokens": 100_000})
            model.scripts.append(using(says("one"), 60))
            await client.turn(thread_id, "one")
            assert (await ended_turn(client, thread_id, "two"))[1]["status"] == "interrupted"
            os.kill(server.process.pid, signal.SIGKILL)
            await server.ended()
        async with running(tmp_path) as server, server.client() as client:
            # It is not loaded: it goes on when it is.
            params = {"threadId": thread_id, "budget": {"tokens": 300_000}}
            assert (await client.call("thread/budget/set", params))["budget"]["percent"] == 20
            await client.call("thread/resume", {"threadId": thread_id})
            turn = (await client.wait_for("turn/completed"))["params"]["turn"]
            assert (turn["status"], model.inputs()[-1]) == (
                "completed",
                ("developer", MORE_BUDGET),
            )


@claim("budgets:fork")
async def test_a_fork_has_a_budget_of_its_own_and_no_usage(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(budget={"tokens": 50_000})
        served.model.scripts.append(using(says("one"), 49))
        await client.turn(thread_id, "one")
        fork = (await client.call("thread/fork", {"threadId": thread_id}))["thread"]["id"]
        assert (await client.call("thread/budget/set", {"threadId": fork}))["budget"] is None
        answer = await client.call(
            "thread/budget/set", {"threadId": fork, "budget": {"tokens": 1_000_000}}
        )
        assert answer["budget"]["used"]["tokens"] == 0
        # Or it begins with one of its own, which survives a reload as that of a start does.
        params = {"threadId": thread_id, "budget": {"tokens": 1_000}}
        fork = (await client.call("thread/fork", params))["thread"]["id"]
        kept = (await client.call("thread/budget/set", {"threadId": fork}))["budget"]
        assert (kept["limits"], kept["used"]["tokens"]) == (limits(tokens=1_000), 0)
        told, turn = await ended_turn(client, fork, "too much")
        assert (told[-1], turn["error"]["codexErrorInfo"]) == ((None, True, 0), EXCEEDED)
        params["budget"] = {"tokens": 0}
        error = await client.refusal("thread/fork", params)
        assert error.data["field"] == "budget.tokens"
        # What was reverted stays spent.
        turns = await client.call("thread/turns/list", {"threadId": thread_id})
        revert = {"threadId": thread_id, "beforeTurnId": turns["data"][0]["id"]}
        await client.call("thread/revert", revert)
        kept = await client.call("thread/budget/set", {"threadId": thread_id})
        assert (kept["budget"]["used"]["tokens"], kept["budget"]["percent"]) == (49_490, 98)


@claim("budgets:refused")
@pytest.mark.parametrize(
    ("budget", "field", "rule"),
    [
        ({"tokens": 0}, "budget.tokens", "must be from 1 to"),
        ({"turns": -1}, "budget.turns", "must be from 1 to"),
        ({"seconds": 1 << 60}, "budget.seconds", "must be from 1 to"),
        (
            {"cost": {"currency": "usd", "amount": "1"}},
            "budget.cost.currency",
            "three capital letters",
        ),
        ({"cost": {"currency": "USD", "amount": "-1"}}, "budget.cost.amount", "above 0"),
        ({"cost": {"currency": "USD", "amount": "1e3"}}, "budget.cost.amount", "above 0"),
        ({"cost": {"currency": "USD", "amount": "0.00"}}, "budget.cost.amount", "above 0"),
        ({"tokens": 1010}, "budget.tokens", "must be more than 1010"),
        ({"turns": 1}, "budget.turns", "must be more than 1"),
        (
            {"cost": {"currency": "USD", "amount": "0.00102"}},
            "budget.cost.amount",
            "must be more than 0.00102",
        ),
    ],
)
async def test_a_budget_that_makes_no_sense_or_is_passed_is_refused(
    tmp_path: Path, budget: Any, field: str, rule: str
) -> None:
    async with serve(tmp_path, config=PRICES) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts.append(using(says("one"), 1))
        await client.turn(thread_id, "one")
        params = {"threadId": thread_id, "budget": budget}
        error = await client.refusal("thread/budget/set", params)
        assert (error.code, error.data["field"], rule in error.data["rule"]) == (
            -32602,
            field,
            True,
        )
        if "more than" not in rule:
            error = await client.refusal("thread/start", {"budget": budget})
            assert error.data["field"] == field
        assert (await client.call("thread/budget/set", {"threadId": thread_id}))["budget"] is None
