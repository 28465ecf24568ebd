"""tools: exec_command, its sandbox and the questions to the user."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import claim
from tests.support.host.exec_peer import Holders
from tests.support.turn_tools.turn_commands import CommandResult, Desk, command, desk

ESCALATED = {"sandbox_permissions": "require_escalated", "justification": "May I?"}


async def decided(at: Desk, decision: Any, *functions: dict[str, Any]) -> list[str]:
    """Run a turn in which the user is asked once."""
    await at.start(*functions)
    asked = await at.client.until("item/commandExecution/requestApproval")
    await at.client.send({"id": asked[-1]["id"], "result": {"decision": decision}})
    at.messages = [*asked, *await at.client.until("turn/completed")]
    return at.outputs(len(functions))


def question(at: Desk) -> dict[str, Any]:
    [params] = [
        message["params"]
        for message in at.messages
        if message.get("method") == "item/commandExecution/requestApproval"
    ]
    return dict(params)


@claim("commands:sandbox")
async def test_a_command_is_confined_to_what_its_thread_may_do(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    async with desk(tmp_path, "workspace-write") as at:
        line = f"touch inside; echo $?; touch .git/x; echo $?; touch {outside}; echo $?"
        result = await at.run(line)
        inside, git, other = [part for part in result.output.split() if part.isdigit()]
        # The folder of the test is in /tmp, which is a root of its own.
        assert (inside, git, other) == ("0", "1", "0")
        assert (at.folder / "inside").exists()
    async with desk(tmp_path / "b", "read-only") as at:
        result = await at.run("cat /etc/hostname > /dev/null && touch inside; echo $?")
        assert result.output.endswith("Read-only file system\n1\n")
        assert list(at.folder.iterdir()) == []


@claim("commands:sandbox")
async def test_what_the_sandbox_laid_over_a_folder_is_gone_afterwards(tmp_path: Path) -> None:
    async with desk(tmp_path, "workspace-write") as at:
        assert (await at.run("true")).exit_code == 0
        await at.client.call("thread/unsubscribe", {"threadId": at.thread_id})
    # The server has stopped.
    assert list(at.folder.iterdir()) == []


@claim("commands:sandbox")
@pytest.mark.parametrize("leave", ["setsid sleep 1000 &", "(setsid sleep 1000 &)"])
async def test_nothing_of_a_confined_command_is_left(tmp_path: Path, leave: str) -> None:
    async with desk(tmp_path / "at", "workspace-write") as at, Holders(tmp_path).watch() as holders:
        result = await at.run(f"exec 9>{holders.path}; printf x >&9; {leave}\necho done")
        assert result.output == "done\n"
        await holders.held(1)
        await holders.ended()


@claim("commands:approval")
async def test_a_command_that_wants_to_leave_the_sandbox_is_asked_about(tmp_path: Path) -> None:
    async with desk(tmp_path, "read-only", "on-request") as at:
        [text] = await decided(at, "accept", command("touch c; echo ok", **ESCALATED))
        assert (CommandResult(text).exit_code, CommandResult(text).output) == (0, "ok\n")
        assert (at.folder / "c").exists()
        asked = question(at)
        [started], [completed] = at.items("item/started"), at.items("item/completed")
        assert (asked["itemId"], asked["reason"], asked["command"], asked["cwd"]) == (
            started["id"],
            "May I?",
            started["command"],
            str(at.folder),
        )
        assert asked["environmentId"] == "local"
        assert (started["source"], started["processId"]) == ("agent", None)
        assert (completed["source"], completed["status"]) == ("unifiedExecStartup", "completed")
        flags = [
            message["params"]["status"].get("activeFlags")
            for message in at.messages
            if message.get("method") == "thread/status/changed"
        ]
        assert flags == [[], ["waitingOnApproval"], [], None]


@claim("commands:approval")
async def test_a_declined_command_does_not_run_and_the_turn_goes_on(tmp_path: Path) -> None:
    async with desk(tmp_path, "read-only", "on-request") as at:
        [text] = await decided(at, "decline", command("touch c", **ESCALATED))
        assert text == "exec_command failed: rejected by user"
        [completed] = at.items("item/completed")
        assert (completed["status"], completed["exitCode"], completed["processId"]) == (
            "declined",
            None,
            None,
        )
        assert at.messages[-1]["params"]["turn"]["status"] == "completed"
        assert not (at.folder / "c").exists()


@pytest.mark.parametrize("decision", ["decline", "accept"])
async def test_only_a_command_that_was_allowed_ends_another_to_make_room(
    tmp_path: Path, decision: str
) -> None:
    async with desk(tmp_path, "read-only", "on-request") as at:
        at.served.services.sessions.get(at.thread_id).context.commands.max_count = 1
        left = await at.run("sleep 1000", yield_time_ms=250)
        [text] = await decided(at, decision, command("touch c", **ESCALATED))
        ended = (
            f"Session {left.session} was ended to make room: a thread has at most 1 commands, and "
            "it had been silent longest"
        )
        assert (ended in text.splitlines()) == (decision == "accept")
        if decision == "decline":
            assert text == "exec_command failed: rejected by user"
        running = await at.client.call(
            "thread/backgroundTerminals/list", {"threadId": at.thread_id}
        )
        assert [one["processId"] for one in running["data"]] == (
            [str(left.session)] if decision == "decline" else []
        )


@claim("commands:approval")
async def test_a_cancelled_command_ends_the_turn(tmp_path: Path) -> None:
    async with desk(tmp_path, "read-only", "on-request") as at:
        await decided(at, "cancel", command("touch c", **ESCALATED))
        assert [item["status"] for item in at.items("item/completed")] == ["declined"]
        assert at.messages[-1]["params"]["turn"]["status"] == "interrupted"
        assert (await at.run("echo next")).output == "next\n"


@claim("commands:approval")
async def test_what_the_sandbox_denied_is_asked_about_once_and_runs_outside(tmp_path: Path) -> None:
    async with desk(tmp_path, "read-only", "on-request") as at:
        [text] = await decided(at, "accept", command("touch c && echo made"))
        assert (CommandResult(text).exit_code, CommandResult(text).output) == (0, "made\n")
        assert question(at)["reason"] == "command failed; retry without sandbox?"
        [completed] = at.items("item/completed")
        assert (completed["status"], completed["aggregatedOutput"]) == ("completed", "made\n")
        assert await at.stored() == [completed]


@claim("commands:approval")
async def test_what_the_sandbox_denied_stays_a_failure_if_the_user_says_no(tmp_path: Path) -> None:
    async with desk(tmp_path, "read-only", "on-request") as at:
        [text] = await decided(at, "decline", command("touch c"))
        result = CommandResult(text)
        assert result.exit_code == 1
        assert result.output.endswith("Read-only file system\n")
        [completed] = at.items("item/completed")
        assert (completed["status"], completed["exitCode"]) == ("failed", 1)


@claim("commands:approval")
async def test_an_interrupt_while_the_user_is_asked_declines_the_command(tmp_path: Path) -> None:
    async with desk(tmp_path, "read-only", "on-request") as at:
        turn_id = await at.start(command("touch c", **ESCALATED))
        await at.client.wait_for("item/commandExecution/requestApproval")
        await at.client.call("turn/interrupt", {"threadId": at.thread_id, "turnId": turn_id})
        at.messages = await at.client.until("turn/completed")
        messages = [*at.client.take_kept(), *at.messages]
        ended = [
            message["params"]["item"]["status"]
            for message in messages
            if message.get("method") == "item/completed"
        ]
        assert ended == ["declined"]


@claim("commands:sandbox")
async def test_without_a_sandbox_what_must_be_confined_is_declined(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app_server.host.sandbox.machine_sandbox.bubblewraps", tuple)
    async with desk(tmp_path, "read-only") as at:
        [text] = await at.turn(command("echo bare"))
        assert text.startswith("exec_command failed: no sandbox is installed: install the package")
        assert [item["status"] for item in at.items("item/completed")] == ["declined"]


async def test_a_patch_in_a_command_is_a_patch(tmp_path: Path) -> None:
    async with desk(tmp_path, "workspace-write") as at:
        patch = "*** Begin Patch\n*** Add File: new.txt\n+one\n*** End Patch"
        [text] = await at.turn(command(f"apply_patch <<'EOF'\n{patch}\nEOF\n"))
        assert "Success. Updated the following files:\nA new.txt" in text
        assert (at.folder / "new.txt").read_text() == "one\n"
        assert at.items("item/started") == []
