"""Questions about commands: who gets them, what each answer does, what the log says."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from app_server.permissions.shell import grammar
from tests.support.harness import Served, WireClient, calls, claim, methods_of, says, serve
from tests.support.turns import start_turn

QUESTION = "item/commandExecution/requestApproval"
ESCALATED = {"sandbox_permissions": "require_escalated", "justification": "May I?"}


def command(cmd: str, **arguments: Any) -> dict[str, Any]:
    """Script one call."""
    return {"name": "exec_command", "arguments": {"cmd": cmd, "login": False, **arguments}}


@dataclass
class Place:
    """A thread that asks about everything, in a folder, without a sandbox."""

    served: Served
    client: WireClient
    thread_id: str
    folder: Path

    async def begin(self, *commands: dict[str, Any]) -> str:
        """Start a turn whose model runs commands, one a response."""
        self.served.model.requests.clear()
        self.served.model.scripts[:] = [calls(one) for one in commands]
        return await start_turn(self.client, self.thread_id, "go")

    async def question(self) -> dict[str, Any]:
        """Return the next question."""
        message: dict[str, Any] = await self.client.wait_for(QUESTION)
        return message

    async def answer(self, decision: Any) -> dict[str, Any]:
        """Answer the next question, and return what it says."""
        question = await self.question()
        await self.client.send({"id": question["id"], "result": {"decision": decision}})
        params: dict[str, Any] = question["params"]
        return params

    async def end(self) -> str:
        """Wait for the end of the turn, and return its status."""
        message = await self.client.wait_for("turn/completed")
        return str(message["params"]["turn"]["status"])

    async def run(self, cmd: str, *decisions: Any, **arguments: Any) -> str:
        """Run a command, answer its questions, and return what the model got."""
        await self.begin(command(cmd, **arguments))
        for decision in decisions:
            await self.answer(decision)
        messages = await self.client.until("turn/completed")
        assert QUESTION not in methods_of(messages)
        return self.output()

    def output(self) -> str:
        """Return what the model read last."""
        (item,) = [i for i in self.served.model.requests[-1]["input"] if "output" in i][-1:]
        return str(item["output"])

    def decided(self) -> list[dict[str, Any]]:
        """Return the decisions in the thread's log, without times."""
        (path,) = self.served.home.rglob(f"{self.thread_id}.jsonl")
        records = [json.loads(line) for line in path.read_text().splitlines()]
        found = [record for record in records if record["type"] == "approvalDecided"]
        assert all(record.pop("atMs") > 0 for record in found)
        return found


@asynccontextmanager
async def place(tmp_path: Path, config: str = "", **params: Any) -> AsyncIterator[Place]:
    """Give a thread; its model is told nothing of the profile of this machine's shell."""
    folder = tmp_path.resolve() / "work"
    folder.mkdir()
    options = {"sandbox": "danger-full-access", "approvalPolicy": "untrusted", **params}
    async with serve(tmp_path / "server", config=config) as served, served.client() as client:
        thread_id = await client.start_thread(cwd=str(folder), **options)
        yield Place(served, client, thread_id, folder)


SHELL = "/bin/bash -c"


def shown(message: dict[str, Any]) -> tuple[str, Any]:
    """Return a message in few words."""
    params = message["params"]
    match message["method"]:
        case "thread/status/changed":
            return "status", params["status"].get("activeFlags", params["status"]["type"])
        case "item/started" | "item/completed":
            return message["method"], params["item"]["status"]
        case "turn/completed":
            return message["method"], params["turn"]["status"]
    return message["method"], None


def of_command(messages: list[dict[str, Any]]) -> list[tuple[str, Any]]:
    """Return what is about commands and the status."""
    kept = ("thread/status/changed", QUESTION, "serverRequest/resolved", "turn/completed")
    return [
        shown(message)
        for message in messages
        if message["method"] in kept
        or message["params"].get("item", {}).get("type") == "commandExecution"
    ]


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


@claim("commands:learned")
async def test_a_rule_that_is_accepted_holds_for_all_threads(tmp_path: Path) -> None:
    async with place(tmp_path) as work:
        rule = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch"]}}
        await work.run("touch a", rule)
        await work.run("touch b")
        await work.run("ls && touch c")
        await work.run("touch d && mkdir e", "decline")
        file = work.served.home / "rules" / "default.rules"
        assert file.read_text() == 'prefix_rule(pattern=["touch"], decision="allow")\n'
        assert work.decided()[0]["rule"] == ["touch"]
        options = {"sandbox": "danger-full-access", "approvalPolicy": "untrusted"}
        work.thread_id = await work.client.start_thread(cwd=str(work.folder), **options)
        await work.run("touch f")
        assert sorted(path.name for path in work.folder.iterdir()) == ["a", "b", "c", "f"]


async def test_an_accepted_rule_holds_for_the_command_that_is_asked_about(tmp_path: Path) -> None:
    rule = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch", "a"]}}
    async with place(tmp_path, sandbox="read-only") as work:
        # It would be asked about once more if it ran in the sandbox.
        await work.run("touch a", rule)
        assert (work.folder / "a").exists()


@claim("commands:shells")
async def test_a_program_that_is_no_shell_is_trusted_with_nothing(tmp_path: Path) -> None:
    async with place(tmp_path, sandbox="read-only") as work:
        (work.served.home / "rules").mkdir()
        rules = work.served.home / "rules" / "default.rules"
        rules.write_text('prefix_rule(pattern=["touch"], decision="allow")\n')
        evil = work.folder / "bash"
        evil.write_text("#!/bin/sh\ntouch pwned\n")
        evil.chmod(0o755)
        for line in ("ls", "touch a"):
            await work.begin(command(line, shell=str(evil)))
            question = await work.answer("decline")
            assert question["command"].startswith(str(evil))
            assert question["commandActions"] == [{"type": "unknown", "command": line}]
            assert question["proposedExecpolicyAmendment"] is None
            await work.end()
        assert not (work.folder / "pwned").exists()
        # A shell of the system may be named.
        await work.run("touch a", shell="sh")  # noqa: S604 - an argument of the tool
        assert (work.folder / "a").exists()


@claim("commands:unwritten")
async def test_a_rule_that_cannot_be_written_holds_for_the_session(tmp_path: Path) -> None:
    async with place(tmp_path) as work:
        (work.served.home / "rules").write_text("no folder")
        rule = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch", "a"]}}
        await work.begin(command("touch a"))
        await work.answer(rule)
        warning = await work.client.wait_for("warning")
        assert "it holds for this session only" in warning["params"]["message"]
        await work.end()
        await work.run("touch a b")


@claim("commands:amendment")
async def test_a_rule_that_was_not_offered_is_not_written(tmp_path: Path) -> None:
    async with place(tmp_path) as work:
        (work.folder / "x").touch()
        await work.begin(command("rm -rf x"))
        rule = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["rm", "-rf"]}}
        question = await work.answer(rule)
        assert question["proposedExecpolicyAmendment"] is None
        assert question["availableDecisions"] == ["accept", "cancel"]
        assert question["reason"].startswith("this is known to be dangerous")
        await work.end()
        assert not (work.folder / "x").exists()
        assert not (work.served.home / "rules").exists()
        # Without words a rule would be about everything.
        await work.begin(command("touch a"))
        await work.answer({"acceptWithExecpolicyAmendment": {"execpolicy_amendment": []}})
        await work.client.wait_for("warning")
        await work.end()
        await work.run("touch b", "decline")


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

    monkeypatch.setattr(grammar, "_bash", missing)
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


# Who is asked.


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


# Rules.


@claim("rules:files")
async def test_rules_of_the_home_decide(tmp_path: Path) -> None:
    async with place(tmp_path, approvalPolicy="on-request") as work:
        rules = work.served.home / "rules"
        rules.mkdir()
        (rules / "mine.rules").write_text(
            'prefix_rule(["touch"], "prompt", justification="ask me")\n'
            'prefix_rule(["npm"], "forbidden", justification="use yarn")\n'
        )
        await work.begin(command("touch a"))
        assert (await work.answer("accept"))["reason"] == "requires approval: ask me"
        await work.end()
        assert (work.folder / "a").exists()
        assert "use yarn" in await work.run("npm install")
        assert "use yarn" in await work.run("env npm install > x")
        assert not (work.folder / "x").exists()
        (rules / "mine.rules").unlink()
        await work.run("touch b")
        assert (work.folder / "b").exists()


@claim("rules:broken")
async def test_a_broken_file_of_rules_is_reported_with_its_line(tmp_path: Path) -> None:
    async with place(tmp_path) as work:
        rules = work.served.home / "rules"
        rules.mkdir()
        (rules / "a.rules").write_text('prefix_rule(["touch"])\n\nprefix_rule("npm")\n')
        (rules / "b.rules").write_text('prefix_rule(["mkdir"])\n')
        await work.begin(command("mkdir x"), command("touch a"))
        warning = await work.client.wait_for("configWarning")
        place_of = {"line": 3, "column": 1}
        assert warning["params"] == {
            "summary": "A file of rules is broken; no rule of it holds.",
            "details": f"{rules / 'a.rules'}:3: pattern: must be a list that is not empty",
            "path": str(rules / "a.rules"),
            "range": {"start": place_of, "end": place_of},
        }
        # What it allows is asked about, and the other file holds.
        await work.answer("decline")
        messages = await work.client.until("turn/completed")
        assert "configWarning" not in methods_of(messages)
        assert [path.name for path in work.folder.iterdir()] == ["x"]
        # Who comes later is told too, once.
        async with work.served.client() as other:
            told = await other.wait_for("configWarning")
            assert told["params"] == warning["params"]
            await other.call("thread/loaded/list", {})
            assert "configWarning" not in methods_of(other.take_kept())


async def test_a_file_that_was_broken_before_the_start_is_reported_to_who_comes(
    tmp_path: Path,
) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "a.rules").write_text("oops")
    async with serve(tmp_path) as served, served.client() as client:
        warning = await client.wait_for("configWarning")
        assert warning["params"]["path"] == str(rules / "a.rules")


# The log.


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
