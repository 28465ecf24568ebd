"""tools: exec_command in another environment."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.harness import claim, methods_of
from tests.support.host.elsewhere import add, desk_there, entry
from tests.support.host.exec_conversations import listening
from tests.support.host.exec_peer import Holders
from tests.support.host.sandboxes import working_sandbox
from tests.support.turn_tools.turn_commands import CommandResult, command, desk, stdin

QUESTION = "item/commandExecution/requestApproval"


def there(cmd: str, folder: Path, **more: Any) -> dict[str, Any]:
    return command(cmd, environment_id="there", workdir=str(folder), **more)


@claim("commands:elsewhere")
async def test_a_command_runs_in_another_environment(tmp_path: Path) -> None:
    async with listening() as url, desk(tmp_path / "at") as at:
        await at.run("true")
        [declared] = [
            tool for tool in at.served.model.requests[-1]["tools"] if tool["name"] == "exec_command"
        ]
        assert "environment_id" not in declared["parameters"]["properties"]
        await add(at.client, url)
        line = 'echo "$CODEX_THREAD_ID"; pwd; echo err >&2; exit 3'
        [result] = await at.run_calls(there(line, tmp_path))
        assert (result.exit_code, result.output) == (3, f"{at.thread_id}\n{tmp_path}\nerr\n")
        [declared] = [
            tool for tool in at.served.model.requests[-1]["tools"] if tool["name"] == "exec_command"
        ]
        offered = declared["parameters"]["properties"]["environment_id"]
        assert offered["enum"] == ["local", "there"]
        [completed] = at.items("item/completed")
        assert (completed["cwd"], completed["status"], completed["exitCode"]) == (
            str(tmp_path),
            "failed",
            3,
        )


@claim("commands:elsewhere")
async def test_it_is_confined_there(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    async with listening() as url, desk(tmp_path / "at", "read-only") as at:
        await add(at.client, url)
        [denied] = await at.run_calls(there("touch made", work))
        assert (denied.exit_code, list(work.iterdir())) == (1, [])
        assert "Read-only file system" in denied.output


@claim("commands:elsewhere")
@pytest.mark.parametrize("sandbox", ["workspace-write", "danger-full-access"])
async def test_nothing_of_it_is_left_there(tmp_path: Path, sandbox: str) -> None:
    async with (
        listening() as url,
        desk(tmp_path / "at", sandbox) as at,
        Holders(tmp_path).watch() as holders,
    ):
        await add(at.client, url)
        line = f"exec 9>{holders.path}; printf x >&9; (setsid sleep 1000 &)\necho done"
        [result] = await at.run_calls(there(line, tmp_path))
        assert result.output == "done\n"
        await holders.held(1)
        await holders.ended()


@pytest.mark.slow
@claim("commands:elsewhere")
async def test_it_goes_on_behind_the_turn_at_a_terminal_and_takes_input(tmp_path: Path) -> None:
    async with listening() as url, desk(tmp_path / "at") as at:
        await add(at.client, url)
        line = there("stty size; cat", tmp_path, tty=True)
        first = await at.go_on(line, "24 80\r\n")
        assert (first.exit_code, first.output) == (None, "24 80\r\n")
        hello = stdin(first.session, "hello\n")
        second = await at.go_on(hello, "hello\r\nhello\r\n")
        assert second.output == "hello\r\nhello\r\n"
        [third] = await at.run_calls(stdin(first.session, "\x04", yield_time_ms=30_000))
        assert third.exit_code == 0


@claim("commands:elsewhere")
async def test_an_interrupt_ends_it_there(tmp_path: Path) -> None:
    async with (
        listening() as url,
        desk(tmp_path / "at") as at,
        Holders(tmp_path).watch() as holders,
    ):
        await add(at.client, url)
        line = f"exec 9>{holders.path}; printf x >&9; setsid sleep 1000 & sleep 1000"
        turn_id = await at.start(there(line, tmp_path, yield_time_ms=30_000))
        await holders.held(1)
        await at.client.call("turn/interrupt", {"threadId": at.thread_id, "turnId": turn_id})
        await at.client.wait_for("turn/completed")
        await holders.ended()


@claim("commands:elsewhere")
async def test_a_lost_connection_ends_it(tmp_path: Path) -> None:
    async with desk(tmp_path / "at") as at:
        async with listening() as url:
            await add(at.client, url)
            await at.start(there("echo up; exec sleep 1000", tmp_path, yield_time_ms=30_000))
            await at.client.wait_for("item/commandExecution/outputDelta")
        await at.client.wait_for("turn/completed")
        result = CommandResult(at.outputs(1)[0])
        assert (result.exit_code, result.output) == (137, "up\n")


@claim("commands:elsewhere")
@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"environment_id": "nowhere"}, "exec_command failed: unknown environment `nowhere`"),
        ({"environment_id": "there"}, "exec_command failed: environment `there`: "),
    ],
)
async def test_an_environment_out_of_reach_fails_the_call(
    tmp_path: Path, arguments: dict[str, Any], text: str
) -> None:
    async with desk(tmp_path / "at") as at:
        async with listening() as url:
            pass
        await add(at.client, url)
        [output] = await at.turn(command("true", **arguments))
        assert output.startswith(text)


@claim("commands:elsewhere")
async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    async with listening() as url, desk(tmp_path / "at") as at:
        await add(at.client, url)
        [output] = await at.turn(there("true", tmp_path / "none"))
        assert output.startswith("exec_command failed: ")
        assert "No such file" in output


@claim("commands:elsewhere")
async def test_its_folder_is_one_of_the_thread_if_it_is_one_of_its_environment(
    tmp_path: Path,
) -> None:
    # A repository elsewhere may name programs to run, so no rule is about `git` there.
    async with desk_there(tmp_path, policy="untrusted") as at:
        rules = at.served.home / "rules"
        rules.mkdir()
        (rules / "a.rules").write_text('prefix_rule(pattern=["git", "status"])\n')
        await at.turn(command("git status"))
        assert QUESTION not in methods_of(at.messages)
        await at.start(command("git status", workdir=str(tmp_path)))
        question = await at.client.wait_for(QUESTION)
        await at.client.send({"id": question["id"], "result": {"decision": "decline"}})
        await at.client.until("turn/completed")


@pytest.mark.process
@claim("sandbox:places")
async def test_a_folder_there_that_another_thread_has_swapped_is_refused(tmp_path: Path) -> None:
    working_sandbox()
    async with desk_there(tmp_path.resolve(), "workspace-write") as at:
        sub, outside = at.folder / "sub", at.folder.parent / "outside"
        for folder in (sub, outside):
            folder.mkdir()
        first = at.thread_id
        second = await at.client.start_thread(
            environments=[entry(sub)], sandbox="workspace-write", approvalPolicy="never"
        )
        at.thread_id = second
        assert (await at.run("echo x >file")).exit_code == 0
        at.thread_id = first
        assert (await at.run(f"mv sub sub.2; ln -s {outside} sub")).exit_code == 0
        at.thread_id = second
        patch = "*** Begin Patch\n*** Add File: made\n+x\n*** End Patch"
        texts = await at.turn(
            command("echo x >made"),
            {"name": "apply_patch", "arguments": {"input": patch}},
            {"name": "view_image", "arguments": {"path": "file"}},
        )
        wanted = f"`{sub}` led to `{sub}` when the sandbox was set, and leads to `{outside}` now"
        assert [wanted in text for text in texts] == [True] * 3, texts
        assert list(outside.iterdir()) == []
