"""Rules about commands: those that a user accepts, and those in the home folder."""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from app_server.turns.approval.asking import NOT_OFFERED
from tests.support.harness import claim, methods_of, serve
from tests.support.turn_tools.command_questions import command, place


@claim("commands:learned")
async def test_a_rule_that_is_accepted_holds_for_all_threads(tmp_path: Path) -> None:
    async with place(tmp_path) as work:
        rule = {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": ["touch"]}}
        await work.run("touch a", rule, prefix_rule=["touch"])
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


def git(folder: Path, *commands: str) -> None:
    for words in commands:
        subprocess.run(["git", *words.split()], cwd=folder, check=True)


async def test_git_runs_unasked_only_in_a_project_that_the_user_trusts(tmp_path: Path) -> None:
    # Settings of a repository may name programs to run.
    folder = tmp_path.resolve() / "work"
    async with place(tmp_path) as work:
        git(folder, "init -q", "config core.fsmonitor ./evil")
        (folder / "evil").write_text("#!/bin/sh\ntouch pwned\n")
        (folder / "evil").chmod(0o755)
        await work.run("git status", "decline")
        assert not (folder / "pwned").exists()
    shutil.rmtree(folder)
    trusted = f'[projects."{folder}"]\ntrust_level = "trusted"\n'
    async with place(tmp_path, config=trusted) as work:
        git(folder, "init -q")
        await work.run("git status")


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


def learning(*words: str) -> dict[str, Any]:
    return {"acceptWithExecpolicyAmendment": {"execpolicy_amendment": list(words)}}


def network(host: str) -> dict[str, Any]:
    rule = {"network_policy_amendment": {"host": host, "action": "allow"}}
    return {"applyNetworkPolicyAmendment": rule}


@claim("commands:amendment")
@pytest.mark.parametrize(
    "answer",
    [
        learning("sh"),
        learning("touch"),
        learning("touch", "z9", "x"),
        learning("touch z9"),
        learning("TOUCH", "z9"),
        learning(""),
        learning(),
        network("a.example"),
    ],
    ids=str,
)
async def test_an_answer_with_a_rule_that_was_not_offered_is_refused(
    tmp_path: Path, answer: dict[str, Any]
) -> None:
    async with place(tmp_path) as work:
        await work.begin(command("touch z9"))
        question = await work.answer(answer)
        assert question["proposedExecpolicyAmendment"] == ["touch", "z9"]
        warning = await work.client.wait_for("warning")
        assert warning["params"]["message"] == NOT_OFFERED
        assert await work.end() == "completed"
        assert "approval request failed" in work.output()
        [decided] = work.decided()
        assert (decided["decision"], decided.get("rule")) == ("failed", None)
        assert not (work.folder / "z9").exists()
        assert not (work.served.home / "rules").exists()
        # Nothing was learned for the session either.
        await work.run("touch z9", "decline")


@claim("commands:amendment")
async def test_no_rule_is_offered_for_what_is_dangerous_and_none_is_written(tmp_path: Path) -> None:
    async with place(tmp_path) as work:
        (work.folder / "x").touch()
        await work.begin(command("rm -rf x"))
        question = await work.answer(learning("rm", "-rf"))
        assert question["proposedExecpolicyAmendment"] is None
        assert question["availableDecisions"] == ["accept", "cancel"]
        assert question["reason"].startswith("this is known to be dangerous")
        await work.end()
        assert (work.folder / "x").exists()
        assert not (work.served.home / "rules").exists()


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
