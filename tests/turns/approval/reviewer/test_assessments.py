"""The automatic reviewer of approvals: what its assessments, and whatever is none, come to."""

import json
from pathlib import Path
from typing import Any

import pytest

from app_server.models.prompt.request import INTERRUPTED
from app_server.turns.approval import reviewer
from app_server.turns.approval.reviewer import (
    ADVICE,
    AGAIN,
    INSTRUCTIONS,
    MAX_ANSWER_BYTES,
    SCHEMA,
    SCHEMA_NAME,
    TIMED_OUT,
)
from app_server.turns.usage.budgets import MAX_OUTPUT_TOKENS
from tests.support.harness import claim, methods_of
from tests.support.model import BREAK, Gate, Refusal, calls, says
from tests.support.turn_tools.reviews import (
    ALLOW,
    COMPLETED,
    DENY,
    STARTED,
    WIPE,
    last_output,
    of_review,
    review,
    undecided,
    verdict,
    with_peer,
)


@claim("review:allow", "review:events", "review:request")
async def test_an_allowed_call_runs_and_nobody_is_asked(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as place:
        script = [calls(WIPE), verdict(ALLOW), says("done")]
        turn_id = await place.begin(*script, text="please wipe it")
        messages = await place.client.until("turn/completed")
        assert of_review(messages) == [
            ("item/started", "call_1", "inProgress", None),
            (STARTED, "call_1", review("inProgress")),
            (
                "guardianWarning",
                "Automatic approval review approved (risk: low, authorization: high): "
                "The user asked for it.",
            ),
            (COMPLETED, "call_1", review("approved", ALLOW)),
            ("item/completed", "call_1", "completed", None),
            ("turn/completed", "completed"),
        ]
        begun, ended = (
            next(m["params"] for m in messages if m.get("method") == method)
            for method in (STARTED, COMPLETED)
        )
        shared = {
            "threadId": place.thread_id,
            "turnId": turn_id,
            "startedAtMs": begun["startedAtMs"],
            "reviewId": begun["reviewId"],
            "targetItemId": "call_1",
            "action": {
                "type": "mcpToolCall",
                "server": "raw",
                "toolName": "wipe",
                "connectorId": None,
                "connectorName": None,
                "toolTitle": "Wipe",
            },
        }
        assert begun == {**shared, "review": review("inProgress")}
        assert ended == {
            **shared,
            "completedAtMs": ended["completedAtMs"],
            "decisionSource": "agent",
            "review": review("approved", ALLOW),
        }
        statuses = [m["params"]["status"] for m in messages if "status" in m.get("params", {})]
        assert statuses == [{"type": "active", "activeFlags": []}, {"type": "idle"}]
        asked, reviews = place.model_requests
        assert len(asked) == 2
        (request,) = reviews
        evidence = json.loads(request["input"][0]["content"][0]["text"])
        assert request == {
            "model": "scripted",
            "instructions": INSTRUCTIONS,
            "input": [
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": json.dumps(evidence, **COMPACT)}],
                }
            ],
            "stream": True,
            "store": False,
            "prompt_cache_key": f"{place.thread_id}:review",
            "text": {
                "format": {
                    "type": "json_schema",
                    "name": SCHEMA_NAME,
                    "strict": True,
                    "schema": SCHEMA,
                }
            },
        }
        assert evidence == {
            "user_messages": ["please wipe it"],
            "earlier_user_messages_left_out": 0,
            "recent_items": [{"call": "mcp__raw.wipe", "arguments": '{"p": 1}'}],
            "earlier_items_left_out": 0,
            "action": {
                "kind": "mcp_tool_call",
                "server": "raw",
                "tool": "wipe",
                "title": "Wipe",
                "description": "Destroy things.",
                "annotations": {"destructiveHint": True},
                "arguments": {"p": 1},
            },
        }


COMPACT: Any = {"separators": (",", ":"), "ensure_ascii": False}


async def test_a_review_counts_for_the_budget_of_its_thread(tmp_path: Path) -> None:
    async with with_peer(tmp_path, budget={"tokens": 200_000}) as place:
        messages = await place.run(calls(WIPE), verdict(ALLOW), says("done"))
        assert (COMPLETED, "call_1", review("approved", ALLOW)) in of_review(messages)
        _, (request,) = place.model_requests
        assert request["max_output_tokens"] == MAX_OUTPUT_TOKENS


@claim("review:once", "review:tokens")
async def test_an_approval_is_for_one_call_and_its_tokens_are_not_the_threads(
    tmp_path: Path,
) -> None:
    async with with_peer(tmp_path) as place:
        first = await place.run(calls(WIPE), verdict(ALLOW), says("done"))
        again = await place.run(calls(WIPE), verdict(ALLOW), says("done"))
        assert methods_of(first).count(COMPLETED) == methods_of(again).count(COMPLETED) == 1
        usage = [
            m["params"]["tokenUsage"]["total"]["totalTokens"]
            for m in [*first, *again]
            if m.get("method") == "thread/tokenUsage/updated"
        ]
        assert usage == [15, 30, 45, 60]


@claim("review:deny")
async def test_a_denied_call_fails_and_the_model_gets_the_reason(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as place:
        told = await place.run(calls(WIPE), verdict(DENY), says("done"))
        text = (
            "This action was rejected due to unacceptable risk.\n"
            f"Reason: Too much is lost.\n{ADVICE}"
        )
        assert of_review(told)[2:] == [
            (
                "guardianWarning",
                "Automatic approval review denied (risk: high, authorization: low): "
                "Too much is lost.",
            ),
            (COMPLETED, "call_1", review("denied", DENY)),
            ("item/completed", "call_1", "failed", {"message": text}),
            ("turn/completed", "completed"),
        ]
        assert last_output(place.served) == text


@pytest.mark.parametrize(
    ("answer", "cause", "attempts"),
    [
        (says("I think it is fine."), "the answer is no verdict", 3),
        (says(json.dumps(ALLOW) + " Really."), "the answer is no verdict", 3),
        (verdict({"outcome": "allow"}), "the answer is no verdict", 3),
        (verdict({**ALLOW, "outcome": "perhaps"}), "the answer is no verdict", 3),
        (verdict({**ALLOW, "more": 1}), "the answer is no verdict", 3),
        (verdict({**ALLOW, "rationale": " "}), "the answer is no verdict", 3),
        (calls(WIPE), "there is no answer", 1),
        (
            says("x" * (MAX_ANSWER_BYTES + 1)),
            f"the answer has more than {MAX_ANSWER_BYTES} bytes",
            3,
        ),
        (
            [*verdict(ALLOW)[:-1], BREAK],
            "stream disconnected before completion: peer closed connection without sending "
            "complete message body (incomplete chunked read)",
            3,
        ),
        (Refusal(400, {"error": {"code": "invalid_prompt", "message": "no"}}), None, 1),
    ],
)
@claim("review:fail-closed")
async def test_whatever_is_no_verdict_denies(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: Any,
    cause: str | None,
    attempts: int,
) -> None:
    monkeypatch.setattr(reviewer, "RETRY_BASE_S", 0.0)
    async with with_peer(tmp_path) as place:
        script = [calls(WIPE), *[answer] * attempts, says("done")]
        told = of_review(await place.run(*script))
        assert (len(place.served.model.requests), place.served.model.scripts) == (attempts + 2, [])
        if cause is None:
            cause = f"unexpected status 400 Scripted: no, url: {place.served.model.url}/responses"
        failure = f"Automatic approval review failed: {cause}"
        assert told[2:] == [
            ("guardianWarning", failure),
            (COMPLETED, "call_1", review("denied", rationale=failure)),
            ("item/completed", "call_1", "failed", {"message": undecided(failure)}),
            ("turn/completed", "completed"),
        ]
        assert last_output(place.served) == undecided(failure)


@claim("review:retries")
async def test_a_review_is_tried_again_and_clients_are_notified_of_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviewer, "RETRY_BASE_S", 0.0)
    unreadable = says("I think it is fine.")
    busy = Refusal(503, {"error": {"message": "busy"}})
    async with with_peer(tmp_path) as place:
        for script in ([busy, unreadable], [unreadable, busy]):
            told = await place.run(calls(WIPE), *script, verdict(ALLOW), says("done"))
            assert [entry[0] for entry in of_review(told)] == [
                "item/started",
                STARTED,
                "guardianWarning",
                COMPLETED,
                "item/completed",
                "turn/completed",
            ]
            assert review("approved", ALLOW) in [entry[-1] for entry in of_review(told)]
        _, reviews = place.model_requests
        evidence = [request["input"][0] for request in reviews]
        assert evidence[:3] == [evidence[0]] * 3
        assert evidence[3:] == [evidence[3]] * 3
        again = {
            "type": "message",
            "role": "developer",
            "content": [{"type": "input_text", "text": AGAIN}],
        }
        assert [request["input"][1:] for request in reviews] == [
            *([], [], [again]),
            *([], [again], [again]),
        ]


@claim("review:timeout")
async def test_a_review_that_takes_too_long_denies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reviewer, "REVIEW_S", 0.05)
    async with with_peer(tmp_path) as place:
        # On a busy machine the model never hears of the review, and the turn gets its script.
        gate = Gate()
        await place.begin(calls(WIPE), [gate, *says("done")], says("done"))
        told = await place.client.until(COMPLETED)
        gate.opened.set()
        told += await place.client.until("turn/completed")
        assert of_review(told)[2:] == [
            ("guardianWarning", TIMED_OUT),
            (COMPLETED, "call_1", review("timedOut", rationale=TIMED_OUT)),
            ("item/completed", "call_1", "failed", {"message": undecided(TIMED_OUT)}),
            ("turn/completed", "completed"),
        ]


@claim("review:interrupt")
async def test_an_interrupt_aborts_the_review(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as place:
        gate = Gate()
        turn_id = await place.begin(calls(WIPE), [gate])
        await gate.wait_until_reached()
        params = {"threadId": place.thread_id, "turnId": turn_id}
        await place.client.call("turn/interrupt", params)
        assert of_review(await place.client.until("turn/completed")) == [
            ("item/started", "call_1", "inProgress", None),
            (STARTED, "call_1", review("inProgress")),
            (COMPLETED, "call_1", review("aborted")),
            ("turn/completed", "interrupted"),
        ]
        await place.run(says("done"))
        assert place.served.model.inputs()[-2:] == [("developer", INTERRUPTED), ("user", "go")]
