"""The automatic reviewer of approvals, as clients, the model and the log meet it."""

import json
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from app_server.extension.metadata import ApprovalSource, RuntimeMetadata, ToolMetadata
from app_server.extension.registration import Registration
from app_server.extension.registry import ExtensionRegistry
from app_server.mcp.catalog.config import HttpTransport, ServerConfig
from app_server.mcp.tools.naming import RawName, VisibleName
from app_server.mcp.tools.table import Tool
from app_server.turns.approval.forms import planned_by_server
from app_server.turns.model import offline
from app_server.turns.model.prompt.request import INTERRUPTED, STOPPED_BY_REVIEWER
from app_server.turns.model.prompt.surroundings import kind_of
from app_server.turns.review import asking, reviewer
from app_server.turns.review.evidence import (
    MAX_ARGUMENTS_BYTES,
    MAX_EXCERPT_BYTES,
    MAX_USER_BYTES,
    connected_account,
    excerpt,
    planned_call,
)
from app_server.turns.review.limits import MAX_REVIEWS, TurnReviews
from app_server.turns.review.reviewer import ADVICE, ADVICE_UNDECIDED, TIMED_OUT
from app_server.turns.review.verdict import (
    AGAIN,
    INSTRUCTIONS,
    MAX_ANSWER_BYTES,
    MAX_RATIONALE_BYTES,
    SCHEMA,
    SCHEMA_NAME,
    NoVerdict,
    for_the_public,
    parse_assessment,
)
from protocol.elicitation import FormElicitation
from protocol.items import McpToolCallGuardianApprovalReviewAction
from tests.support.harness import (
    BREAK,
    Gate,
    Pipe,
    Refusal,
    Served,
    WireClient,
    calls,
    claim,
    methods_of,
    says,
    serve,
    stdio_server,
)
from tests.support.mcp_peers.shelf import Shelf
from tests.support.mcp_peers.web_peer import WebPeer

STARTED = "item/autoApprovalReview/started"
COMPLETED = "item/autoApprovalReview/completed"
ASKED = "mcpServer/elicitation/request"
REVIEWED = 'approvals_reviewer = "auto_review"\n'
WIPE = {"namespace": "mcp__raw", "name": "wipe", "arguments": {"p": 1}}
ALLOW = {
    "risk_level": "low",
    "user_authorization": "high",
    "outcome": "allow",
    "rationale": "The user asked for it.",
}
DENY = {
    "risk_level": "high",
    "user_authorization": "low",
    "outcome": "deny",
    "rationale": "Too much is lost.",
}
EMAIL = "Jane.Doe@example.com"


def verdict(members: Any) -> list[Any]:
    return says(json.dumps(members))


@dataclass
class Place:
    """A server, a client and a thread with one MCP server."""

    served: Served
    client: WireClient
    thread_id: str

    async def begin(self, *scripts: Any, text: str = "go", **options: Any) -> str:
        """Start a turn whose model plays scripts; gives its id."""
        self.served.model.scripts.extend(scripts)
        params = {"threadId": self.thread_id, "input": [{"type": "text", "text": text}], **options}
        return str((await self.client.call("turn/start", params))["turn"]["id"])

    async def run(self, *scripts: Any, **options: Any) -> list[Any]:
        """Run a turn; gives all that was said."""
        await self.begin(*scripts, **options)
        return await self.client.until("turn/completed")

    @property
    def model_requests(self) -> tuple[list[Any], list[Any]]:
        """The requests of turns, and those of reviews."""
        requests = self.served.model.requests
        reviews = [request for request in requests if "text" in request]
        return [request for request in requests if "text" not in request], reviews


@asynccontextmanager
async def with_peer(tmp_path: Path, config: str = REVIEWED, **params: Any) -> AsyncIterator[Place]:
    config += stdio_server("raw")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        yield Place(served, client, await ready_thread(client, **params))


async def ready_thread(client: WireClient, **params: Any) -> str:
    thread_id = await client.start_thread(**params)
    await client.wait_for("mcpServer/startupStatus/updated", lambda p: p["status"] == "ready")
    return thread_id


def of_review(messages: Sequence[Any]) -> list[Any]:
    """Return what clients hear of reviews and of the calls under review, without times and ids."""
    kept: list[Any] = []
    for message in messages:
        params = message.get("params", {})
        match message.get("method"):
            case "item/started" | "item/completed" if params["item"]["type"] == "mcpToolCall":
                item = params["item"]
                kept.append((message["method"], item["id"], item["status"], item["error"]))
            case "item/autoApprovalReview/started" | "item/autoApprovalReview/completed":
                kept.append((message["method"], params["targetItemId"], params["review"]))
            case "guardianWarning":
                kept.append((message["method"], params["message"]))
            case "turn/completed":
                kept.append((message["method"], params["turn"]["status"]))
    return kept


def review(status: str, assessment: Any = None, rationale: str | None = None) -> dict[str, Any]:
    found = assessment or {}
    return {
        "status": status,
        "riskLevel": found.get("risk_level"),
        "userAuthorization": found.get("user_authorization"),
        "rationale": found.get("rationale", rationale),
    }


def last_output(served: Served) -> str:
    """Return what the model read of its last call."""
    outputs = [item for item in served.model.items() if "output" in item]
    text = outputs[-1]["output"]
    return text if isinstance(text, str) else text[-1]["text"]


def undecided(cause: str) -> str:
    return f"{cause}\n{ADVICE_UNDECIDED}"


# Verdicts.


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
    monkeypatch.setattr(asking, "RETRY_BASE_S", 0.0)
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
    monkeypatch.setattr(asking, "RETRY_BASE_S", 0.0)
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


# Bounds.


@claim("review:denials")
async def test_three_denials_in_a_row_end_the_turn(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as place:
        told = of_review(await place.run(*[calls(WIPE), verdict(DENY)] * 3, says("no")))
        assert [entry for entry in told if entry[0] == COMPLETED] == [
            (COMPLETED, "call_1", review("denied", DENY))
        ] * 3
        assert told[-2:] == [
            (
                "guardianWarning",
                "Automatic approval review rejected too many approval requests for this turn "
                "(3 consecutive, 3 in the last 50 reviews); interrupting the turn.",
            ),
            ("turn/completed", "interrupted"),
        ]
        place.served.model.scripts.clear()
        told = of_review(await place.run(calls(WIPE), verdict(DENY), says("done")))
        # Another turn begins without what the last one was denied.
        assert told[-1] == ("turn/completed", "completed")
        asked, _ = place.model_requests
        said = [i for i in asked[-1]["input"] if i["type"] == "message" and kind_of(i) is None]
        assert [(item["role"], item["content"][0]["text"]) for item in said] == [
            ("user", "go"),
            ("developer", STOPPED_BY_REVIEWER),
            ("user", "go"),
        ]


def test_denials_are_counted_in_a_row_and_among_the_last_fifty() -> None:
    turn = TurnReviews("t")
    assert [turn.end(denied=d) for d in (True, True, False, True, True)] == [False] * 5
    assert turn.end(denied=True)
    assert (turn.in_a_row, turn.recent_denials) == (3, 5)
    # Calls side by side may be denied after that; the turn is stopped once.
    assert not turn.end(denied=True)
    spread = TurnReviews("t")
    ends = [spread.end(denied=n % 3 != 0) for n in range(15)]
    assert ends == [False] * 14 + [True]
    assert (spread.in_a_row, spread.recent_denials) == (2, 10)
    forgetful = TurnReviews("t")
    assert not any(forgetful.end(denied=n % 6 == 0) for n in range(200))


@claim("review:bounds")
async def test_a_turn_has_a_limited_number_of_reviews(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.turns.review.limits.MAX_REVIEWS", 1)
    async with with_peer(tmp_path) as place:
        scripts = [calls(WIPE), verdict(ALLOW), calls(WIPE), says("done")]
        told = of_review(await place.run(*scripts))
        failure = f"Automatic approval review failed: this turn has had {MAX_REVIEWS} reviews"
        assert told[5:] == [
            ("item/started", "call_1", "inProgress", None),
            (STARTED, "call_1", review("inProgress")),
            ("guardianWarning", failure),
            (COMPLETED, "call_1", review("denied", rationale=failure)),
            ("item/completed", "call_1", "failed", {"message": undecided(failure)}),
            ("turn/completed", "completed"),
        ]
        _, reviews = place.model_requests
        assert len(reviews) == 1


def message(role: str, *texts: str) -> dict[str, Any]:
    content = [{"type": "input_text", "text": text} for text in texts]
    return {"type": "message", "role": role, "content": content}


def test_the_excerpt_has_the_newest_and_says_what_is_left_out() -> None:
    image = {"type": "input_image", "image_url": "data:"}
    history = [
        message("user", "first", "line"),
        {"type": "reasoning", "summary": []},
        message("assistant", "hello"),
        {"type": "function_call", "name": "tool", "arguments": "{}", "call_id": "c"},
        {"type": "function_call_output", "call_id": "c", "output": [{"type": "x", "text": "out"}]},
        {"role": "user", "content": "second"},
        {**message("user"), "content": [image]},
        {"type": "web_search_call"},
    ]
    assert excerpt(history) == {
        "user_messages": ["first\nline", "second", "[input_image]"],
        "earlier_user_messages_left_out": 0,
        "recent_items": [
            {"from": "assistant", "text": "hello"},
            {"call": "tool", "arguments": "{}"},
            {"output": "out"},
            {"item": {"type": "web_search_call"}},
        ],
        "earlier_items_left_out": 0,
    }
    long = [message("user", f"{n}" + "u" * 5_000) for n in range(10)]
    long += [message("assistant", f"{n}" + "a" * 1_500) for n in range(30)]
    shown = excerpt(long)
    assert [text[0] for text in shown["user_messages"]] == ["6", "7", "8", "9"]
    assert shown["earlier_user_messages_left_out"] == 6
    assert shown["recent_items"][-1]["text"].startswith("29a")
    assert shown["earlier_items_left_out"] == 30 - len(shown["recent_items"])


@given(
    st.lists(
        st.builds(
            lambda role, text, times: message(role, text * times),
            st.sampled_from(["user", "assistant", "developer"]),
            st.text(st.characters(codec="utf-8"), max_size=20),
            st.integers(1, 2_000),
        ),
        max_size=12,
    )
)
def test_no_history_makes_the_excerpt_too_long(history: list[Any]) -> None:
    shown = excerpt(history)
    assert len(to_json(shown["user_messages"])) <= MAX_USER_BYTES + 2
    assert len(to_json(shown)) <= MAX_EXCERPT_BYTES + 200


def tool_of(metadata: RuntimeMetadata, **definition: Any) -> Tool:
    config = ServerConfig(name="web", transport=HttpTransport(url="http://x"), metadata=metadata)
    return Tool(
        RawName("web", "look"),
        VisibleName("mcp__web", "look"),
        {"name": "look", "inputSchema": {}, **definition},
        config,
    )


def test_the_planned_call_is_shown_within_bounds() -> None:
    source = ApprovalSource(id="a", name="App", description="d" * 10_000)
    metadata = RuntimeMetadata(tools={"look": ToolMetadata(approval_source=source)})
    tool = tool_of(metadata, title="t" * 10_000, description="\\" * 10_000, annotations={"a": 1})
    planned = planned_call(tool, {"text": '"' * 1_000_000})
    assert list(planned) == [
        "kind",
        "server",
        "tool",
        "source",
        "title",
        "description",
        "annotations",
        "arguments",
    ]
    assert planned["arguments"].startswith('{"text":"')
    assert "tokens truncated" in planned["arguments"]
    assert len(to_json(planned["arguments"])) <= MAX_ARGUMENTS_BYTES + 100
    assert len(to_json(planned)) <= MAX_ARGUMENTS_BYTES + 12_000


def test_an_answer_is_a_verdict_or_nothing() -> None:
    assert parse_assessment(json.dumps(ALLOW)).model_dump() == ALLOW
    long = parse_assessment(json.dumps({**ALLOW, "rationale": "r" * 10_000}))
    assert len(for_the_public(long, None).rationale) < MAX_RATIONALE_BYTES + 50
    for answer in ("", "null", "[]", '"allow"', json.dumps({**ALLOW, "risk_level": None})):
        with pytest.raises(NoVerdict):
            parse_assessment(answer)


# Who decides.


@claim("review:settings")
async def test_the_thread_or_the_turn_names_the_reviewer_also_by_its_old_name(
    tmp_path: Path,
) -> None:
    config = stdio_server("raw")
    async with serve(tmp_path, config=config) as served, served.client() as client:
        started = await client.call("thread/start", {"approvalsReviewer": "guardian_subagent"})
        assert started["approvalsReviewer"] == "auto_review"
        await client.wait_for("mcpServer/startupStatus/updated", lambda p: p["status"] == "ready")
        place = Place(served, client, started["thread"]["id"])
        told = await place.run(calls(WIPE), verdict(ALLOW), says("done"))
        assert methods_of(told).count(COMPLETED) == 1
        await place.begin(calls(WIPE), says("done"), approvalsReviewer="user")
        question = await client.wait_for(ASKED)
        await client.send({"id": question["id"], "result": {"action": "accept"}})
        told = await client.until("turn/completed")
        assert STARTED not in methods_of(told)
    old = 'approvals_reviewer = "guardian_subagent"\n'
    async with with_peer(tmp_path / "old", old, serviceTier="flex") as place:
        told = await place.run(calls(WIPE), verdict(ALLOW), says("done"))
        assert methods_of(told).count(COMPLETED) == 1
        _, (request,) = place.model_requests
        assert request["service_tier"] == "flex"


async def test_an_unknown_reviewer_in_the_file_is_refused(tmp_path: Path) -> None:
    config = 'approvals_reviewer = "robot"\n'
    async with serve(tmp_path, config=config) as served, served.client() as client:
        error = await client.refusal("thread/start", {})
        assert "unknown variant `robot`" in error.message
        assert "expected one of `user`, `auto_review`, `guardian_subagent`" in error.message


@claim("review:policy")
async def test_policy_comes_before_the_reviewer(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as place:
        free = {"type": "dangerFullAccess"}
        for policy, sandbox in (("never", {"type": "readOnly"}), ("never", free)):
            told = await place.run(
                calls(WIPE), says("done"), approvalPolicy=policy, sandboxPolicy=sandbox
            )
            assert STARTED not in methods_of(told)
        read_only = {**WIPE, "name": "meta", "arguments": {}}
        told = await place.run(calls(read_only), says("done"), approvalPolicy="on-request")
        assert STARTED not in methods_of(told)
        assert json.loads(last_output(place.served))["x-codex-turn-metadata"]["auto_review_enabled"]


@claim("review:offline")
async def test_the_offline_model_denies_what_it_cannot_judge(tmp_path: Path) -> None:
    async with with_peer(tmp_path, modelProvider="offline") as place:
        told = of_review(await place.run(text='/tool raw.wipe {"p": 1}'))
        assert [entry[-1] for entry in told if entry[0] == COMPLETED] == [
            review("denied", offline.REVIEW_ANSWER)
        ]
        assert told[-1] == ("turn/completed", "completed")
    assert offline.REVIEW_SCHEMA == SCHEMA_NAME
    parse_assessment(json.dumps(offline.REVIEW_ANSWER))


# Approvals that servers ask for by themselves.

MAY_I = {
    "codex_request_type": "approval_request",
    "codex_approval_kind": "mcp_tool_call",
    "tool_name": "send",
    "tool_title": "Send",
    "tool_params": {"to": "all"},
    "connector_id": "c1",
    "connector_name": "Post",
}


def holding_back(meta: Any, properties: Any = None, **more: Any) -> dict[str, Any]:
    """Call the tool whose server asks before it answers."""
    schema = {"type": "object", "properties": properties or {}}
    asked = {"message": "May I?", "_meta": meta, "requestedSchema": schema, **more}
    arguments = {"method": "elicitation/create", "params": asked}
    return {"namespace": "mcp__raw", "name": "request", "arguments": arguments}


def answer_to_server(served: Served) -> Any:
    """Return what the server was answered; the tool gives it back."""
    return json.loads(last_output(served))["result"]


BY_REVIEWER = {"approvals_reviewer": "auto_review"}


@claim("review:elicitation")
async def test_an_approval_that_a_server_asks_for_goes_to_the_reviewer(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as place:
        told = await place.run(calls(holding_back(MAY_I)), verdict(ALLOW), says("done"))
        begun = next(m["params"] for m in told if m.get("method") == STARTED)
        assert begun["targetItemId"] is None
        assert begun["action"] == {
            "type": "mcpToolCall",
            "server": "raw",
            "toolName": "send",
            "connectorId": "c1",
            "connectorName": "Post",
            "toolTitle": "Send",
        }
        _, (request,) = place.model_requests
        assert json.loads(request["input"][0]["content"][0]["text"])["action"] == {
            "kind": "request_of_mcp_server",
            "server": "raw",
            "tool": "send",
            "tool_title": "Send",
            "connector_id": "c1",
            "connector_name": "Post",
            "message": "May I?",
            "arguments": {"to": "all"},
        }
        assert answer_to_server(place.served) == {
            "action": "accept",
            "content": {},
            "_meta": BY_REVIEWER,
        }
        await place.run(calls(holding_back(MAY_I)), verdict(DENY), says("done"))
        answer = answer_to_server(place.served)
        assert answer["action"] == "decline"
        assert answer["_meta"].keys() == {"message", "approvals_reviewer"}
        assert "\nReason: Too much is lost.\n" in answer["_meta"]["message"]


@pytest.mark.parametrize(
    "question",
    [
        holding_back(MAY_I, {"a": {"type": "string"}}),
        holding_back({**MAY_I, "tool_name": " "}),
        holding_back({**MAY_I, "tool_params": [1]}),
        holding_back({**MAY_I, "codex_approval_kind": "other"}),
        holding_back(MAY_I, mode="url", url="http://x", elicitationId="e"),
    ],
)
async def test_an_approval_that_cannot_be_reviewed_is_declined(
    tmp_path: Path, question: Any
) -> None:
    async with with_peer(tmp_path) as place:
        told = await place.run(calls(question), says("done"))
        assert answer_to_server(place.served) == {"action": "decline", "_meta": BY_REVIEWER}
        assert STARTED not in methods_of(told)


async def test_other_questions_of_servers_are_the_users(tmp_path: Path) -> None:
    plain = {key: value for key, value in MAY_I.items() if key != "codex_request_type"}
    async with with_peer(tmp_path) as place:
        for meta, reviewer_ in ((plain, "auto_review"), (MAY_I, "user")):
            question = calls(holding_back(meta))
            await place.begin(question, says("done"), approvalsReviewer=reviewer_)
            asked = await place.client.wait_for(ASKED)
            assert asked["params"]["_meta"] == meta
            await place.client.send({"id": asked["id"], "result": {"action": "cancel"}})
            assert STARTED not in methods_of(await place.client.until("turn/completed"))
            assert answer_to_server(place.served) == {"action": "cancel"}


async def test_an_interrupt_withdraws_what_a_server_asked_the_reviewer(tmp_path: Path) -> None:
    async with with_peer(tmp_path) as place:
        gate = Gate()
        turn_id = await place.begin(calls(holding_back(MAY_I)), [gate])
        await gate.wait_until_reached()
        params = {"threadId": place.thread_id, "turnId": turn_id}
        await place.client.call("turn/interrupt", params)
        ended = await place.client.wait_for(COMPLETED)
        assert ended["params"]["review"] == review("aborted")


# Registered servers, and the account that a tool uses.


def look(context: Any) -> dict[str, Any]:
    meta = {"codex/approvalContext": context, "other": 1}
    return {"name": "look", "inputSchema": {"type": "object"}, "_meta": meta}


class Tap:
    """A client's pipe that keeps everything that comes out of it."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self.heard: list[str] = []

    async def receive(self) -> str:
        text = await self._pipe.receive()
        self.heard.append(text)
        return text

    async def send(self, text: str) -> None:
        await self._pipe.send(text)

    async def aclose(self) -> None:
        await self._pipe.aclose()


@asynccontextmanager
async def with_registered(
    tmp_path: Path, metadata: RuntimeMetadata, config: str = "", **peer: Any
) -> AsyncIterator[Place]:
    async with WebPeer(**peer).serve() as web:
        shelf = Shelf("shelf", Registration("web", {"url": web.url}, metadata=metadata))
        extensions = ExtensionRegistry([shelf])
        async with (
            serve(tmp_path, config=config, extensions=extensions) as served,
            served.client() as client,
        ):
            client.pipe = Tap(client.pipe)
            yield Place(served, client, await ready_thread(client))


LOOK = {"namespace": "mcp__web", "name": "look", "arguments": {"at": "it"}}


@claim("review:registration")
@pytest.mark.parametrize(
    ("named", "source"),
    [
        ("look", ("app-1", "Notes")),
        ("notes.look", ("app-1", "Notes")),
        ("Notes", ("c1", "Post")),
        ("send", ("c1", "Post")),
    ],
)
def test_whose_call_a_server_holds_back_is_what_its_registration_says(
    named: str, source: tuple[str, str]
) -> None:
    said = ApprovalSource(id="app-1", name="Notes")
    metadata = RuntimeMetadata(
        tools={
            "look": ToolMetadata(approval_source=said, search_aliases=("Notes", "notes.look")),
            "write": ToolMetadata(approval_source=said, search_aliases=("Notes", "notes.write")),
        }
    )
    form = FormElicitation.model_validate(
        {
            "threadId": "t",
            "turnId": "u",
            "serverName": "web",
            "_meta": {**MAY_I, "tool_name": named, "connector_description": "of the server"},
            "message": "May I?",
            "requestedSchema": {"type": "object", "properties": {}},
        }
    )
    planned = planned_by_server("u", form, metadata)
    assert planned is not None
    evidence = planned.evidence
    assert (evidence["connector_id"], evidence["connector_name"]) == source
    assert ("connector_description" in evidence) == (source == ("c1", "Post"))
    assert isinstance(planned.action, McpToolCallGuardianApprovalReviewAction)
    assert (planned.action.connector_id, planned.action.connector_name) == source


@claim("review:registration", "apps:b4")
async def test_a_registration_wins_over_the_threads_reviewer(tmp_path: Path) -> None:
    source = ApprovalSource(id="app-1", name="Notes", description="Keeps notes.")
    metadata = RuntimeMetadata(
        approvals_reviewer="auto_review", tools={"look": ToolMetadata(approval_source=source)}
    )
    async with with_registered(tmp_path / "a", metadata) as place:
        told = await place.run(calls(LOOK), verdict(ALLOW), says("done"))
        begun = next(m["params"] for m in told if m.get("method") == STARTED)
        assert begun["action"] == {
            "type": "mcpToolCall",
            "server": "web",
            "toolName": "look",
            "connectorId": "app-1",
            "connectorName": "Notes",
            "toolTitle": None,
        }
        _, (request,) = place.model_requests
        assert json.loads(request["input"][0]["content"][0]["text"])["action"] == {
            "kind": "mcp_tool_call",
            "server": "web",
            "tool": "look",
            "source": {"id": "app-1", "name": "Notes", "description": "Keeps notes."},
            "arguments": {"at": "it"},
        }
    asking = RuntimeMetadata(approvals_reviewer="user")
    async with with_registered(tmp_path / "b", asking, REVIEWED) as place:
        await place.begin(calls(LOOK), says("done"))
        question = await place.client.wait_for(ASKED)
        await place.client.send({"id": question["id"], "result": {"action": "accept"}})
        told = await place.client.until("turn/completed")
        assert STARTED not in methods_of(told)


@pytest.mark.parametrize("outcome", ["allow", "deny", "refusal"])
@claim("review:account", "apps:b4")
async def test_the_account_is_shown_to_the_reviewer_and_never_comes_out(
    tmp_path: Path, outcome: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    repeated = f"It is the account of {EMAIL.lower()}, no doubt."
    answer: Any = verdict({**ALLOW, "outcome": outcome, "rationale": repeated})
    if outcome == "refusal":
        answer = Refusal(400, {"error": {"message": f"bad input: {EMAIL}"}})
    metadata = RuntimeMetadata(approvals_reviewer="auto_review", trusts_approval_context=True)
    tools = [look({"connectedAccountEmail": EMAIL})]
    async with with_registered(tmp_path, metadata, tools=tools) as place:
        tap = place.client.pipe
        assert isinstance(tap, Tap)
        await place.run(calls(LOOK), answer, says("done"))
        await place.client.call("thread/read", {"threadId": place.thread_id, "includeTurns": True})
        status = await place.client.call("mcpServerStatus/list", {"threadId": place.thread_id})
        schema = {"type": "object"}
        shown = {"name": "look", "inputSchema": schema, "_meta": {"other": 1}}
        assert status["data"][0]["tools"]["look"] == shown
        asked, (request,) = place.model_requests
        shown = json.loads(request["input"][0]["content"][0]["text"])["action"]
        assert shown["connected_account_email"] == EMAIL
        log = next((tmp_path / "threads").rglob("*.jsonl")).read_text()
        everything = [*tap.heard, json.dumps(asked), log, *caplog.messages]
        assert "call_1" in log
        assert [text for text in everything if EMAIL.lower() in text.lower()] == []
        if outcome != "refusal":
            assert "It is the account of […], no doubt." in "".join(tap.heard)


def test_only_a_trusted_and_plausible_account_is_shown() -> None:
    trusted = RuntimeMetadata(trusts_approval_context=True)

    def account(context: Any, metadata: RuntimeMetadata = trusted) -> str | None:
        return connected_account(tool_of(metadata, _meta={"codex/approvalContext": context}))

    assert account({"connectedAccountEmail": EMAIL}) == EMAIL
    longest = "@".rjust(320, "x")
    assert account({"connectedAccountEmail": longest}) == longest
    assert account({"connectedAccountEmail": EMAIL}, RuntimeMetadata()) is None
    refused = ["", "jane", longest + "x", "a @b", "a@b\n", "a@\x07b", "a@\u202eb", "é@" * 160, 7]
    assert [account({"connectedAccountEmail": email}) for email in refused] == [None] * 9
    contexts: list[Any] = [None, [], "x@y", {}]
    assert [account(context) for context in contexts] == [None] * 4
    assert connected_account(tool_of(trusted, _meta="x")) is None
    assert connected_account(tool_of(trusted)) is None


@claim("surroundings:reviewer")
def test_context_from_the_server_is_no_word_of_the_user() -> None:
    context = [
        message("user", "<project_instructions>\nAllow all.\n</project_instructions>"),
        message("developer", "<permissions>\nAll.\n</permissions>"),
        message("user", "<environment_context>\n</environment_context>"),
    ]
    said = message("user", "<b>go</b>")
    assert excerpt([*context, said]) == excerpt([said])
    assert excerpt([said])["user_messages"] == ["<b>go</b>"]
