"""Reviews of code: what the reviewer is asked, what clients see, what the thread keeps."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app_server.models.prompt.environment_context import PERMISSIONS, newest_of_each
from app_server.sessions.code_review import (
    INSTRUCTIONS,
    SILENT,
    STOPPED,
    hint,
    request,
    review_for_model,
    shown_review,
)
from protocol.turns.code_review import BaseBranchReviewTarget
from tests.support.harness import Served, WireClient, claim, methods_of, serve
from tests.support.model import Gate, Refusal, calls, says

UNCOMMITTED = {"type": "uncommittedChanges"}
FINDING = {
    "title": "[P1] It divides by zero",
    "body": "When the list is empty.\n\nAlways.",
    "confidence_score": 0.9,
    "priority": 1,
    "code_location": {"absolute_file_path": "/w/a.py", "line_range": {"start": 3, "end": 4}},
}
FOUND = {
    "findings": [FINDING],
    "overall_correctness": "patch is incorrect",
    "overall_explanation": "It breaks.",
    "overall_confidence_score": 0.8,
}
SHOWN = (
    "It breaks.\n\nReview comment:\n\n- [P1] It divides by zero — /w/a.py:3-4\n"
    "  When the list is empty.\n\n  Always."
)


async def review(
    client: WireClient, thread_id: str, target: Mapping[str, Any] = UNCOMMITTED
) -> list[dict[str, Any]]:
    """Run a review, and return what was told up to its end."""
    await client.call("review/start", {"threadId": thread_id, "target": target})
    return await client.until("turn/completed")


def items(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return type and text of completed items."""
    return [
        (item["type"], item.get("review", item.get("text", "")))
        for message in messages
        if message["method"] == "item/completed"
        for item in [message["params"]["item"]]
    ]


# Texts.


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        (json.dumps(FOUND), SHOWN),
        (f"Here:\n```json\n{json.dumps(FOUND)}\n```", SHOWN),
        (json.dumps({**FOUND, "findings": []}), "It breaks."),
        (json.dumps({"findings": [FINDING, {"title": "Other"}]}).replace("It breaks.", ""), None),
        ("plain words", "plain words"),
        ("{not json}", "{not json}"),
        ('{"findings": []}', '{"findings": []}'),
        ("[1]", "[1]"),
        (" ", SILENT),
        (
            json.dumps({"findings": [{"code_location": {"absolute_file_path": "/a"}}]}),
            "Review comment:\n\n- Untitled — /a",
        ),
    ],
)
def test_an_answer_is_shown_as_people_read_it(answer: str, shown: str | None) -> None:
    if shown is None:
        assert shown_review(answer).startswith("Review comments:\n\n- [P1]")
        assert shown_review(answer).endswith("\n\n- Other")
    else:
        assert shown_review(answer) == shown


def test_a_branch_cannot_leave_its_command() -> None:
    target = BaseBranchReviewTarget(branch="x; rm -rf /")
    assert "git merge-base HEAD 'x; rm -rf /'" in request(target)
    assert hint(target) == "changes against 'x; rm -rf /'"


# Turns.


@claim("review:items", "review:history")
async def test_a_review_is_framed_by_two_items_and_its_result_is_kept(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(sandbox="workspace-write")
        await client.turn(thread_id, "hello")
        served.model.scripts.append(says(json.dumps(FOUND)))
        params = {"threadId": thread_id, "target": UNCOMMITTED, "delivery": "inline"}
        result = await client.call("review/start", params)
        turn = result["turn"]
        assert result["reviewThreadId"] == thread_id
        assert (turn["status"], turn["items"][0]["content"][0]["text"]) == (
            "inProgress",
            "current changes",
        )
        messages = await client.until("turn/completed")
        assert [method for method in methods_of(messages) if "tokenUsage" not in method] == [
            "thread/status/changed",
            "turn/started",
            *["item/started", "item/completed"] * 3,
            "thread/readState/changed",
            "thread/status/changed",
            "turn/completed",
        ]
        assert items(messages) == [
            ("enteredReviewMode", "current changes"),
            ("exitedReviewMode", SHOWN),
            ("agentMessage", SHOWN),
        ]
        end = messages[-1]["params"]["turn"]
        assert (end["id"], end["items"][0]["text"]) == (turn["id"], SHOWN)
        # The reviewer sees nothing of the conversation, and changes nothing.
        asked = served.model.requests[-1]
        assert asked["instructions"] == INSTRUCTIONS
        assert [role for role, _ in served.model.inputs()] == ["user"]
        assert "git status" in served.model.inputs()[0][1]
        told = dict(newest_of_each(asked["input"]))[PERMISSIONS]["content"][0]["text"]
        assert "`read-only`" in told
        assert "`never`" in told
        assert {tool["name"] for tool in asked["tools"]} == {"exec_command", "write_stdin"}
        # The thread's own model is told the result, and goes on as before.
        await client.turn(thread_id, "thanks")
        assert served.model.inputs() == [
            ("user", "hello"),
            ("assistant", "ok"),
            ("user", review_for_model(SHOWN)),
            ("assistant", SHOWN),
            ("user", "thanks"),
        ]
        assert served.model.requests[-1]["instructions"] != INSTRUCTIONS
        told = dict(newest_of_each(served.model.requests[-1]["input"]))[PERMISSIONS]
        assert "`workspace-write`" in told["content"][0]["text"]
        read = await client.call("thread/read", {"threadId": thread_id, "includeTurns": True})
        kinds = [item["type"] for item in read["thread"]["turns"][1]["items"]]
        assert kinds == ["enteredReviewMode", "exitedReviewMode", "agentMessage"]


@claim("review:commands")
async def test_the_reviewer_runs_commands_and_reads_their_output(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread(sandbox="danger-full-access")
        call = {"name": "exec_command", "arguments": {"cmd": "echo the-diff", "login": False}}
        served.model.scripts += [calls(call), says("fine")]
        messages = await review(client, thread_id)
        kinds = [kind for kind, _ in items(messages)]
        assert kinds == [
            "enteredReviewMode",
            "commandExecution",
            "exitedReviewMode",
            "agentMessage",
        ]
        assert "the-diff" in served.model.items()[-1]["output"]
        state = served.services.sessions.get(thread_id).log.state
        assert not any("call" in item["type"] for item in state.history)


@claim("review:targets")
@pytest.mark.parametrize(
    ("target", "shown", "asked"),
    [
        (
            {"type": "baseBranch", "branch": "main"},
            "changes against 'main'",
            "`git merge-base HEAD main`",
        ),
        (
            {"type": "commit", "sha": "0123456789abc", "title": "Add it"},
            "commit 0123456: Add it",
            "`git show 0123456789abc`",
        ),
        ({"type": "commit", "sha": "0123456789abc"}, "commit 0123456", "Review the commit"),
        ({"type": "custom", "instructions": " Look at a.py "}, "Look at a.py", "Look at a.py"),
    ],
)
async def test_what_is_reviewed_is_named_to_people_and_to_the_model(
    tmp_path: Path, target: dict[str, Any], shown: str, asked: str
) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        messages = await review(client, thread_id, target)
        assert items(messages)[0] == ("enteredReviewMode", shown)
        assert asked in served.model.inputs(0)[0][1]


@claim("review:refused")
async def test_what_names_nothing_or_comes_too_early_is_refused(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        for target, code, message in (
            ({"type": "custom", "instructions": " "}, -32600, "instructions must not be empty"),
            ({"type": "baseBranch", "branch": ""}, -32600, "branch must not be empty"),
            ({"type": "commit", "sha": "\n"}, -32600, "sha must not be empty"),
            (
                {"type": "commit", "sha": "a" * 1025},
                -32602,
                "Invalid params: `target.sha` has more than 1024 characters",
            ),
        ):
            params = {"threadId": thread_id, "target": target}
            error = await client.refusal("review/start", params)
            assert (error.code, error.message) == (code, message)
        detached = {"threadId": thread_id, "target": UNCOMMITTED, "delivery": "detached"}
        error = await client.refusal("review/start", detached)
        assert error.code == -32602
        gate = Gate()
        served.model.scripts.append([gate, *says("ok")])
        said = [{"type": "text", "text": "go"}]
        await client.call("turn/start", {"threadId": thread_id, "input": said})
        await gate.wait_until_reached()
        params = {"threadId": thread_id, "target": UNCOMMITTED}
        error = await client.refusal("review/start", params)
        assert (error.code, error.data["code"]) == (-32600, "turnActive")
        gate.opened.set()


@asynccontextmanager
async def waiting_review(
    home: Path, verdict: str
) -> AsyncIterator[tuple[Served, WireClient, dict[str, str], Gate]]:
    """Begin a review whose model waits at a gate; gives the ids of the thread and the turn, too."""
    async with serve(home) as served, served.client() as client:
        thread_id = await client.start_thread()
        gate = Gate()
        served.model.scripts.append([gate, *says(verdict)])
        params = {"threadId": thread_id, "target": UNCOMMITTED}
        turn = (await client.call("review/start", params))["turn"]
        await gate.wait_until_reached()
        yield served, client, {"threadId": thread_id, "turnId": turn["id"]}, gate


@claim("review:interrupted")
async def test_an_interrupted_review_leaves_the_review_mode(tmp_path: Path) -> None:
    async with waiting_review(tmp_path, "late") as (served, client, ids, gate):
        thread_id = ids["threadId"]
        said = [{"type": "text", "text": "hurry"}]
        steer = {"threadId": thread_id, "expectedTurnId": ids["turnId"], "input": said}
        error = await client.refusal("turn/steer", steer)
        assert error.message == "cannot steer a review turn"
        await client.call("turn/interrupt", ids)
        messages = await client.until("turn/completed")
        assert messages[-1]["params"]["turn"]["status"] == "interrupted"
        assert items(messages)[-2:] == [("exitedReviewMode", STOPPED), ("agentMessage", STOPPED)]
        gate.opened.set()
        assert (await client.turn(thread_id, "next"))["status"] == "completed"
        assert ("user", review_for_model(STOPPED)) in served.model.inputs()


@claim("review:failure")
async def test_a_review_whose_model_fails_ends_the_review_mode_too(tmp_path: Path) -> None:
    async with serve(tmp_path) as served, served.client() as client:
        thread_id = await client.start_thread()
        served.model.scripts.append(Refusal(400, {"error": {"message": "no"}}))
        messages = await review(client, thread_id)
        assert messages[-1]["params"]["turn"]["status"] == "failed"
        assert items(messages)[1][0] == "exitedReviewMode"
        assert items(messages)[1][1].startswith("The review failed: ")


@claim("review:input-meanwhile")
async def test_what_comes_during_a_review_is_for_the_threads_own_model(tmp_path: Path) -> None:
    async with waiting_review(tmp_path, "fine") as (served, client, ids, gate):
        said = [{"type": "text", "text": "and then?"}]
        joined = await client.call("turn/start", {"threadId": ids["threadId"], "input": said})
        assert joined["turn"]["id"] == ids["turnId"]
        gate.opened.set()
        await client.wait_for("turn/completed")
        assert served.model.inputs() == [
            ("user", review_for_model("fine")),
            ("assistant", "fine"),
            ("user", "and then?"),
        ]
        assert served.model.requests[-1]["instructions"] != INSTRUCTIONS


@claim("review:model")
async def test_another_model_may_review_and_the_context_stays_that_of_the_thread(
    tmp_path: Path,
) -> None:
    config = 'review_model = "critic"\n'
    async with serve(tmp_path, config=config) as served, served.client() as client:
        thread_id = await client.start_thread()
        await client.turn(thread_id, "hello")
        before = usage(served, thread_id)
        await review(client, thread_id)
        assert [r["model"] for r in served.model.requests] == ["scripted", "critic"]
        after = usage(served, thread_id)
        assert after.last == before.last
        assert after.total.total_tokens == 2 * before.total.total_tokens


def usage(served: Served, thread_id: str) -> Any:
    return served.services.sessions.get(thread_id).log.state.usage
