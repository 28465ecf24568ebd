"""Questions about commands: what is asked, and what each answer does."""

from pathlib import Path
from typing import Any

import pytest

from app_server.permissions.shell import parse
from tests.support.harness import claim
from tests.support.model import calls
from tests.support.turn_tools.command_questions import (
    QUESTION,
    SHELL,
    command,
    of_command,
    place,
    shown,
)
from tests.support.turns import start_turn


@claim("commands:question")
async def test_a_command_is_asked_about_before_it_runs(tmp_path: Path) -> None:
    async with place(tmp_path) as work:
        turn_id = await work.begin(command("touch new.txt"))
        before = await work.client.until(QUESTION)
        assert of_command(before)[1:] == [
            ("status", ["waitingOnApproval"]),
            ("item/started", "inProgress"),
            (QUESTION, None),
        ]
        assert before[-2]["params"]["item"]["processId"] is None
        question = before[-1]
        params = question["params"]
        assert params.pop("startedAtMs") > 0
        assert params == {
            "kind": "command",
            "threadId": work.thread_id,
            "turnId": turn_id,
            "itemId": "call_1",
            "approvalId": None,
            "environmentId": "local",
            "reason": None,
            "networkApprovalContext": None,
            "command": f"{SHELL} 'touch new.txt'",
            "cwd": str(work.folder),
            "commandActions": [{"type": "unknown", "command": "touch new.txt"}],
            "additionalPermissions": None,
            "proposedExecpolicyAmendment": ["touch", "new.txt"],
            "proposedNetworkPolicyAmendments": None,
            "availableDecisions": [
                "accept",
                {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch", "new.txt"]}},
                "cancel",
            ],
        }
        assert not (work.folder / "new.txt").exists()
        await work.client.send({"id": question["id"], "result": {"decision": "accept"}})
        after = await work.client.until("turn/completed")
        assert of_command(after) == [
            ("serverRequest/resolved", None),
            ("status", []),
            ("item/completed", "completed"),
            ("status", "idle"),
            ("turn/completed", "completed"),
        ]
        assert (work.folder / "new.txt").exists()
        assert work.decided() == [
            {
                "v": 1,
                "type": "approvalDecided",
                "turnId": turn_id,
                "itemId": "call_1",
                "action": "command",
                "subject": f"{SHELL} 'touch new.txt'",
                "decision": "accept",
                "by": "user",
                "client": "test",
            }
        ]


@claim("commands:decline", "commands:cancel")
@pytest.mark.parametrize(("decision", "end"), [("decline", "completed"), ("cancel", "interrupted")])
async def test_who_says_no_keeps_the_command_from_running(
    tmp_path: Path, decision: str, end: str
) -> None:
    async with place(tmp_path) as work:
        await work.begin(command("touch new.txt"))
        await work.answer(decision)
        after = await work.client.until("turn/completed")
        assert of_command(after)[:3] == [
            ("serverRequest/resolved", None),
            ("item/completed", "declined"),
            ("status", []),
        ]
        assert shown(after[-1]) == ("turn/completed", end)
        if end == "completed":
            assert "rejected by user" in work.output()
        assert not (work.folder / "new.txt").exists()
        assert [record["decision"] for record in work.decided()] == [decision]
        # The next turn works.
        assert "new.txt" not in await work.run("ls")


@claim("commands:session")
async def test_a_command_that_was_allowed_for_the_session_runs_again(tmp_path: Path) -> None:
    async with place(tmp_path) as work:
        (work.folder / "sub").mkdir()
        await work.run("touch a", "acceptForSession")
        await work.run("touch a")
        # Another line, and another folder, are asked about.
        await work.run("touch  a", "decline")
        await work.run("touch a", "decline", workdir="sub")
        # And so is all of it once the thread was unloaded.
        await work.client.call("thread/unsubscribe", {"threadId": work.thread_id})
        await work.served.services.sessions.unload(work.thread_id)
        await work.client.call("thread/resume", {"threadId": work.thread_id})
        await work.run("touch a", "decline")


async def test_an_answer_that_makes_no_sense_declines(tmp_path: Path) -> None:
    async with place(tmp_path) as work:
        assert "approval request failed" in await work.run("touch a", "perhaps")
        await work.begin(command("touch a"))
        question = await work.question()
        await work.client.send({"id": question["id"], "error": {"code": -1, "message": "no"}})
        await work.end()
        assert "approval request failed" in work.output()
        assert [(r["decision"], r["client"]) for r in work.decided()] == [("failed", "test")] * 2
        assert not (work.folder / "a").exists()


async def test_without_a_grammar_everything_is_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> Any:
        raise ImportError("no grammar")

    monkeypatch.setattr(parse, "_bash", missing)
    async with place(tmp_path, approvalPolicy="on-request") as work:
        await work.begin(command("touch a"))
        question = await work.answer("accept")
        assert question["reason"] == "this is known to be dangerous: it cannot be looked at"
        assert question["commandActions"] == [{"type": "unknown", "command": "touch a"}]
        assert await work.end() == "completed"
        assert (work.folder / "a").exists()


async def test_commands_of_one_answer_are_asked_about_beside_each_other(tmp_path: Path) -> None:
    async with place(tmp_path) as work:
        work.served.model.scripts[:] = [calls(command("touch a"), command("touch b"))]
        await start_turn(work.client, work.thread_id, "go")
        questions = {(q := await work.question())["params"]["itemId"]: q for _ in range(2)}
        assert sorted(questions) == ["call_1", "call_2"]
        answer = {"id": questions["call_2"]["id"], "result": {"decision": "accept"}}
        await work.client.send(answer)
        done = await work.client.wait_for(
            "item/completed", lambda p: p["item"]["type"] == "commandExecution"
        )
        assert (done["params"]["item"]["id"], done["params"]["item"]["status"]) == (
            "call_2",
            "completed",
        )
        read = await work.client.call("thread/read", {"threadId": work.thread_id})
        assert read["thread"]["status"]["activeFlags"] == ["waitingOnApproval"]
        answer = {"id": questions["call_1"]["id"], "result": {"decision": "decline"}}
        await work.client.send(answer)
        assert await work.end() == "completed"
        assert [path.name for path in work.folder.iterdir()] == ["b"]


async def test_a_revert_drops_decisions_and_a_fork_copies_them(tmp_path: Path) -> None:
    async with place(tmp_path) as work:
        await work.run("touch a", "accept")
        fork = await work.client.call("thread/fork", {"threadId": work.thread_id})
        first, work.thread_id = work.thread_id, fork["thread"]["id"]
        assert [record["decision"] for record in work.decided()] == ["accept"]
        work.thread_id = first
        turn_id = work.decided()[0]["turnId"]
        revert = {"threadId": first, "beforeTurnId": turn_id}
        await work.client.call("thread/revert", revert)
        await work.served.services.sessions.unload(first)
        read = await work.client.call("thread/read", {"threadId": first, "includeTurns": True})
        assert read["thread"]["turns"] == []
