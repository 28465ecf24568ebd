"""Questions about commands: who gets them, who answers instead, and what withdraws them."""

import json
from pathlib import Path

import pytest

from tests.support.harness import WireClient, claim, methods_of
from tests.support.model import calls, says
from tests.support.turn_tools.command_questions import QUESTION, SHELL, command, of_command, place
from tests.support.turns import start_turn


@claim("commands:first-answer")
async def test_all_clients_are_asked_and_the_first_answer_counts(tmp_path: Path) -> None:
    async with place(tmp_path) as work, work.served.pipe() as pipe:
        other = WireClient(pipe)
        await other.initialize("other")
        await other.call("thread/resume", {"threadId": work.thread_id})
        await work.begin(command("touch a"))
        theirs = await other.wait_for(QUESTION)
        mine = await work.question()
        assert mine["id"] == theirs["id"]
        await other.send({"id": theirs["id"], "result": {"decision": "accept"}})
        settled = await work.client.wait_for("serverRequest/resolved")
        assert settled["params"] == {"threadId": work.thread_id, "requestId": mine["id"]}
        await work.client.send({"id": mine["id"], "result": {"decision": "cancel"}})
        assert await work.end() == "completed"
        assert (work.folder / "a").exists()
        assert [(r["decision"], r["client"]) for r in work.decided()] == [("accept", "other")]


@claim("commands:reconnect")
async def test_without_a_client_the_question_waits_for_one(tmp_path: Path) -> None:
    async with place(tmp_path) as work:
        await work.begin(command("touch a"))
        first = await work.question()
        await work.client.pipe.aclose()
        async with work.served.client() as client:
            await client.call("thread/resume", {"threadId": work.thread_id})
            again = await client.wait_for(QUESTION)
            assert again["params"] == first["params"]
            await client.send({"id": again["id"], "result": {"decision": "accept"}})
            await client.wait_for("turn/completed")
        assert (work.folder / "a").exists()


@claim("commands:withdrawn")
async def test_an_interrupt_withdraws_the_question(tmp_path: Path) -> None:
    async with place(tmp_path) as work:
        turn_id = await work.begin(command("touch a"))
        question = await work.question()
        params = {"threadId": work.thread_id, "turnId": turn_id}
        await work.client.call("turn/interrupt", params)
        messages = await work.client.until("turn/completed")
        resolved = [m for m in messages if m.get("method") == "serverRequest/resolved"]
        assert [m["params"]["requestId"] for m in resolved] == [question["id"]]
        await work.client.send({"id": question["id"], "result": {"decision": "accept"}})
        assert [(r["decision"], r["by"]) for r in work.decided()] == [("cancel", "server")]
        assert "client" not in work.decided()[0]
        assert not (work.folder / "a").exists()


@claim("commands:withdrawn")
async def test_a_shutdown_withdraws_the_question(tmp_path: Path) -> None:
    async with place(tmp_path) as work:
        await work.begin(command("touch a"))
        await work.question()
    assert [(r["decision"], r["by"]) for r in work.decided()] == [("cancel", "server")]
    assert not (work.folder / "a").exists()


@claim("commands:withdrawn")
async def test_an_unload_withdraws_the_question(tmp_path: Path) -> None:
    async with place(tmp_path) as work:
        await work.begin(command("touch a"))
        await work.question()
        await work.served.services.sessions.unload(work.thread_id)
        assert [(r["decision"], r["by"]) for r in work.decided()] == [("cancel", "server")]


@claim("commands:timeout")
async def test_what_nobody_answers_in_time_is_declined(tmp_path: Path) -> None:
    async with place(tmp_path, "approval_timeout_s = 0.05\n") as work:
        await work.begin(command("touch a"))
        messages = await work.client.until("turn/completed")
        assert ("item/completed", "declined") in of_command(messages)
        assert "serverRequest/resolved" in methods_of(messages)
        assert "nobody answered within 0.05 s" in work.output()
        assert [(r["decision"], r["by"]) for r in work.decided()] == [("expired", "server")]


@claim("commands:reviewed")
@pytest.mark.parametrize("outcome", ["allow", "deny"])
async def test_the_reviewer_may_decide_instead(tmp_path: Path, outcome: str) -> None:
    async with place(tmp_path, approvalsReviewer="auto_review") as work:
        verdict = {
            "risk_level": "low",
            "user_authorization": "high",
            "outcome": outcome,
            "rationale": "Because.",
        }
        work.served.model.scripts[:] = [
            calls(command("touch a")),
            says(json.dumps(verdict)),
        ]
        await start_turn(work.client, work.thread_id, "go")
        review = await work.client.wait_for("item/autoApprovalReview/started")
        assert review["params"]["action"] == {
            "type": "command",
            "source": "unifiedExec",
            "command": f"{SHELL} 'touch a'",
            "cwd": str(work.folder),
        }
        messages = await work.client.until("turn/completed")
        assert QUESTION not in methods_of(messages)
        assert (work.folder / "a").exists() is (outcome == "allow")
        if outcome == "deny":
            assert ("item/completed", "declined") in of_command(messages)
            assert "Reason: Because." in work.output()
        decision = "accept" if outcome == "allow" else "decline"
        assert [(r["decision"], r["by"]) for r in work.decided()] == [(decision, "reviewer")]
        evidence = work.served.model.requests[1]["input"][0]["content"][0]["text"]
        assert json.loads(evidence)["action"] == {
            "kind": "command",
            "command": f"{SHELL} 'touch a'",
            "cwd": str(work.folder),
            "runs_in_sandbox": False,
            "why_asked": None,
            "justification_of_the_agent": None,
        }
