"""tools: thread/shellCommand."""

from pathlib import Path
from typing import Any

import anyio
import pytest

from app_server.host.commands.local_commands import LocalCommand, LocalCommands
from app_server.sessions.session import NOT_RUN
from app_server.sessions.user_shell import UserShell
from tests.support.files.fifos import write_fifo
from tests.support.harness import WAIT_S, claim
from tests.support.host.elsewhere import add, desk_there
from tests.support.host.exec_conversations import listening
from tests.support.host.stopped import STOPPED
from tests.support.model import Gate, says
from tests.support.turn_tools.turn_commands import Desk, command, desk
from tests.support.turns import start_turn

SHELL = "thread/shellCommand"


async def shell(at: Desk, line: str, **more: Any) -> None:
    answer = await at.client.call(SHELL, {"threadId": at.thread_id, "command": line, **more})
    assert answer == {}


def texts_of_commands(at: Desk) -> list[str]:
    """Give the texts about commands of the user that the model got in its newest request."""
    return [text for role, text in at.served.model.inputs() if "<user_shell_command>" in text]


@claim("commands:of-user")
async def test_a_command_of_the_user_is_a_turn_of_its_own_and_the_model_gets_its_result(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path, "read-only") as at:
        await shell(at, " echo user; touch made; exit 2 ")
        at.messages = await at.client.until("turn/completed")
        assert at.messages[-1]["params"]["turn"]["status"] == "completed"
        assert at.served.model.requests == []
        [started], [completed] = at.items("item/started"), at.items("item/completed")
        assert started["source"] == "userShell"
        assert (completed["status"], completed["exitCode"], completed["aggregatedOutput"]) == (
            "failed",
            2,
            "user\n",
        )
        # It has full access, whatever the sandbox of the thread.
        assert (at.folder / "made").exists()
        assert await at.stored() == [completed]
        await at.client.turn(at.thread_id, "hi")
        [text] = texts_of_commands(at)
        begin, rest = text.split("Duration: ")
        assert begin == (
            "<user_shell_command>\n<command>\necho user; touch made; exit 2\n</command>\n<result>\n"
            "Exit code: 2\n"
        )
        assert rest.split(" ", 1)[1] == (
            "seconds\nOutput:\nuser\n\n</result>\n</user_shell_command>"
        )


async def test_it_runs_without_a_grammar_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise ImportError("no grammar")

    monkeypatch.setattr("app_server.permissions.shell.parse._bash", missing)
    async with desk(tmp_path) as at:
        await shell(at, "echo user")
        at.messages = await at.client.until("turn/completed")
        [completed] = at.items("item/completed")
        assert (completed["exitCode"], completed["aggregatedOutput"]) == (0, "user\n")
        assert completed["commandActions"] == [{"type": "unknown", "command": "echo user"}]


@claim("commands:of-user")
async def test_in_a_running_turn_it_belongs_to_that_turn(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        await at.run("mkfifo go")
        turn_id = await at.start(command("cat go"))
        await at.client.wait_for("item/started", lambda p: p["item"]["type"] == "commandExecution")
        await shell(at, "echo beside")
        ended = await at.client.wait_for("item/completed")
        assert ended["params"]["turnId"] == turn_id
        assert ended["params"]["item"]["source"] == "userShell"
        await write_fifo(at.folder / "go", "gone\n")
        at.messages = await at.client.until("turn/completed")
        # The request that answers the call tells of it.
        assert len(texts_of_commands(at)) == 1
        assert [item["source"] for item in await at.stored()] == [
            "unifiedExecStartup",
            "userShell",
            "unifiedExecStartup",
        ]


@claim("commands:of-user")
@pytest.mark.parametrize("is_alone", [True, False])
@pytest.mark.parametrize(
    ("prints", "shown"),
    [
        ("echo up", "up\ncommand aborted by user"),
        ("printf up", "up\ncommand aborted by user"),
    ],
)
async def test_an_interrupt_ends_it_and_its_item_and_the_model_are_told(
    tmp_path: Path, is_alone: bool, prints: str, shown: str
) -> None:
    async with desk(tmp_path) as at:
        turn_id = "" if is_alone else await at.start(command("sleep 1000"))
        await shell(at, f"{prints}; sleep 1000 & wait")
        started = await at.client.wait_for(
            "item/started", lambda p: p["item"].get("source") == "userShell"
        )
        await at.client.wait_for("item/commandExecution/outputDelta")
        turn_id = started["params"]["turnId"]
        await at.client.call("turn/interrupt", {"threadId": at.thread_id, "turnId": turn_id})
        item_id = started["params"]["item"]["id"]
        ended = await at.client.wait_for("item/completed", lambda p: p["item"]["id"] == item_id)
        item = ended["params"]["item"]
        assert (item["status"], item["exitCode"], item["aggregatedOutput"]) == ("failed", -1, shown)
        assert item in await at.stored()
        if is_alone:
            await at.client.wait_for("turn/completed")
        await at.client.turn(at.thread_id, "hi")
        [text] = texts_of_commands(at)
        assert "\nExit code: -1\n" in text
        assert f"\nOutput:\n{shown}\n</result>" in text


@claim("commands:of-user")
@pytest.mark.parametrize("of_user", [True, False])
async def test_an_interrupt_before_its_start_is_known_completes_its_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_user: bool
) -> None:
    start = LocalCommands.start

    async def start_that_ends_late(*args: Any, **more: Any) -> LocalCommand:
        running = await start(*args, **more)
        try:
            await anyio.sleep_forever()
            return running
        finally:
            await running.stop()

    monkeypatch.setattr(LocalCommands, "start", start_that_ends_late)
    async with desk(tmp_path) as at:
        if of_user:
            await shell(at, "echo up; exec sleep 1000")
        else:
            await at.start(command("echo up; exec sleep 1000"))
        delta = await at.client.wait_for("item/commandExecution/outputDelta")
        turn_id, item_id = delta["params"]["turnId"], delta["params"]["itemId"]
        await at.client.call("turn/interrupt", {"threadId": at.thread_id, "turnId": turn_id})
        ended = await at.client.wait_for("item/completed", lambda p: p["item"]["id"] == item_id)
        item = ended["params"]["item"]
        shown = (
            ("failed", -1, "up\ncommand aborted by user") if of_user else ("failed", 137, "up\n")
        )
        assert (item["status"], item["exitCode"], item["aggregatedOutput"]) == shown
        assert item in await at.stored()
        await at.client.wait_for("turn/completed")
        if of_user:
            await at.client.turn(at.thread_id, "hi")
            [text] = texts_of_commands(at)
            assert f"\nOutput:\n{shown[2]}\n</result>" in text


@claim("commands:of-user")
@pytest.mark.parametrize("interrupted", [False, True])
async def test_a_command_whose_turn_ends_before_it_is_announced_is_in_no_ended_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interrupted: bool
) -> None:
    prepare, prepared, go_on = UserShell.prepare, anyio.Event(), anyio.Event()

    async def prepare_slowly(*args: Any) -> Any:
        made = await prepare(*args)
        prepared.set()
        await go_on.wait()
        return made

    monkeypatch.setattr(UserShell, "prepare", prepare_slowly)
    async with desk(tmp_path) as at:
        gate = Gate()
        at.served.model.scripts.append([gate, *says("done")])
        turn_id = await start_turn(at.client, at.thread_id, "go")
        await gate.wait_until_reached()
        await shell(at, "echo beside")
        await prepared.wait()
        if interrupted:
            params = {"threadId": at.thread_id, "turnId": turn_id}
            await at.client.call("turn/interrupt", params)
        gate.opened.set()
        await at.client.wait_for("turn/completed")
        go_on.set()
        if interrupted:
            error = await at.client.wait_for("error")
            assert (error["params"]["turnId"], error["params"]["error"]["message"]) == (
                turn_id,
                NOT_RUN,
            )
            assert await at.stored() == []
            return
        ended = await at.client.wait_for("turn/completed")
        assert ended["params"]["turn"]["id"] != turn_id
        [item] = await at.stored()
        assert (item["status"], item["aggregatedOutput"]) == ("completed", "beside\n")
        read = await at.client.call("thread/read", {"threadId": at.thread_id, "includeTurns": True})
        assert [[item["type"] for item in turn["items"]] for turn in read["thread"]["turns"]] == [
            ["userMessage", "agentMessage"],
            ["commandExecution"],
        ]


@claim("commands:of-user", "commands:cut-off")
async def test_a_command_that_starts_while_its_thread_is_put_away_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, go_on, started = LocalCommands.start, anyio.Event(), list[LocalCommand]()
    runs = anyio.Event()

    async def start_late(*args: Any, **more: Any) -> LocalCommand:
        started.append(await start(*args, **more))
        runs.set()
        await go_on.wait()
        return started[0]

    async with desk(tmp_path) as at:
        gate = Gate()
        at.served.model.scripts.append([gate, *says("done")])
        await start_turn(at.client, at.thread_id, "go")
        await gate.wait_until_reached()
        monkeypatch.setattr(LocalCommands, "start", start_late)
        await shell(at, "echo up; exec sleep 1000")
        await at.client.wait_for("item/commandExecution/outputDelta")
        await runs.wait()
        await at.client.call("thread/archive", {"threadId": at.thread_id})
        go_on.set()
        with anyio.fail_after(WAIT_S):
            await started[0].gone.wait()


@claim("commands:of-user")
async def test_one_that_is_cut_off_without_the_user_says_how_it_ended(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        await shell(at, "echo up; exec sleep 1000")
        await at.client.wait_for("item/commandExecution/outputDelta")
        await at.client.call("thread/archive", {"threadId": at.thread_id})
        ended = await at.client.wait_for("item/completed")
        item = ended["params"]["item"]
        assert item["exitCode"] in STOPPED
        # A shell may say that what it waited for was terminated.
        assert item["status"] == "failed"
        assert item["aggregatedOutput"].startswith("up\n")
        assert "aborted" not in item["aggregatedOutput"]


@claim("commands:of-user")
async def test_it_ends_when_its_time_is_over(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        await shell(at, "sleep 1000", timeoutMs=50)
        at.messages = await at.client.until("turn/completed")
        [completed] = at.items("item/completed")
        assert (completed["status"], completed["exitCode"]) == ("failed", 124)
        assert (await at.run("echo next")).output == "next\n"


@claim("commands:of-user")
async def test_what_cannot_be_started_is_a_failed_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHELL", "/no/such/shell")
    async with desk(tmp_path, config="allow_login_shell = false\n") as at:
        await shell(at, "true")
        at.messages = await at.client.until("turn/completed")
        [completed] = at.items("item/completed")
        assert (completed["status"], completed["exitCode"], completed["aggregatedOutput"]) == (
            "failed",
            -1,
            "/no/such/shell: No such file or directory",
        )


@claim("commands:of-user")
@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"command": "  "}, "command must not be empty"),
        ({"command": "x" * 100_001}, "command must have at most 100000 characters, and no NUL"),
        ({"command": "a\0b"}, "command must have at most 100000 characters, and no NUL"),
        ({"command": "true", "timeoutMs": -1}, "timeoutMs must not be negative"),
    ],
)
async def test_what_makes_no_command_is_refused(
    tmp_path: Path, params: dict[str, Any], error: str
) -> None:
    async with desk(tmp_path) as at:
        refused = await at.client.refusal(SHELL, {"threadId": at.thread_id, **params})
        assert (refused.code, refused.message) == (-32600, error)


@claim("environment:threads")
@pytest.mark.parametrize(("allowed", "printed"), [("true", "[yes]\n"), ("false", "[]\n")])
async def test_its_shell_there_reads_a_profile_if_the_settings_allow_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: str, printed: str
) -> None:
    (tmp_path / ".profile").write_text("export FROM_PROFILE=yes\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", "/bin/sh")
    async with desk_there(tmp_path, config=f"allow_login_shell = {allowed}\n") as at:
        await shell(at, 'echo "[$FROM_PROFILE]"')
        at.messages = await at.client.until("turn/completed")
        [completed] = at.items("item/completed")
        assert completed["aggregatedOutput"] == printed


@claim("environment:threads")
async def test_it_runs_in_the_first_environment(tmp_path: Path) -> None:
    async with desk_there(tmp_path, "read-only") as at:
        await shell(at, "pwd; touch made")
        at.messages = await at.client.until("turn/completed")
        [completed] = at.items("item/completed")
        assert (completed["cwd"], completed["exitCode"], completed["aggregatedOutput"]) == (
            str(at.folder),
            0,
            f"{at.folder}\n",
        )
        assert (at.folder / "made").exists()
        async with listening() as url:
            pass
        await add(at.client, url)
        await shell(at, "pwd")
        at.messages = await at.client.until("turn/completed")
        [completed] = at.items("item/completed")
        assert (completed["exitCode"], completed["aggregatedOutput"]) == (
            -1,
            "environment `there` is out of reach",
        )


@claim("commands:of-user")
async def test_without_an_environment_nothing_runs_and_the_turn_fails(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        await at.client.call(
            "thread/settings/update", {"threadId": at.thread_id, "environments": []}
        )
        await shell(at, "touch made")
        at.messages = await at.client.until("turn/completed")
        told = [one["params"] for one in at.messages if one["method"] == "error"]
        error = {
            "message": "shell is unavailable in this session",
            **dict.fromkeys(("codexErrorInfo", "additionalDetails", "misalignment")),
        }
        turn = at.messages[-1]["params"]["turn"]
        assert [(one["error"], one["willRetry"]) for one in told] == [(error, False)]
        assert (turn["status"], turn["error"]) == ("failed", error)
        assert at.items("item/started") == []
        assert list(at.folder.iterdir()) == []


@claim("commands:of-user")
async def test_without_an_environment_a_running_turn_goes_on(tmp_path: Path) -> None:
    async with desk(tmp_path) as at:
        gate = Gate()
        at.served.model.scripts.append([gate, *says("done")])
        turn_id = await start_turn(at.client, at.thread_id, "go", environments=[])
        await gate.wait_until_reached()
        await shell(at, "touch made")
        told = await at.client.wait_for("error")
        gate.opened.set()
        ended = await at.client.wait_for("turn/completed")
        assert (told["params"]["turnId"], told["params"]["error"]["message"]) == (
            turn_id,
            "shell is unavailable in this session",
        )
        assert ended["params"]["turn"]["status"] == "completed"
        assert list(at.folder.iterdir()) == []
