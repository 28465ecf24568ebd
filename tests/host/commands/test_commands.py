"""host: commands: pipes, terminals, input, and how they end."""

import asyncio
import errno
import os
import signal
import sys
from pathlib import Path

import anyio
import pytest

from app_server.host.commands import local_commands
from app_server.host.commands.local_commands import (
    CommandLaunch,
    InputClosed,
    SpawnerGone,
    TerminalSize,
)
from app_server.permissions.sandbox.policy import UNRESTRICTED
from tests.support.files.fifos import write_fifo
from tests.support.harness import WAIT_S
from tests.support.host.commands import HOLD, Printed, commands, finished, sh
from tests.support.host.exec_peer import Holders
from tests.support.host.patient_spawner import PATIENT_SPAWNER
from tests.support.host.quick_spawner import QUICK_SPAWNER


async def test_a_command_has_pipes_a_folder_its_environment_and_a_session(tmp_path: Path) -> None:
    session_id = f"{sys.executable} -ISc 'import os; print(os.getsid(0))'"
    line = f'echo "$PWD $GIVEN"; echo err >&2; cat; {session_id}; env | wc -l; exit 3'
    async with commands() as local:
        printed = Printed()
        launch = sh(line, {"GIVEN": "g"}, str(tmp_path), merges_stderr=False, has_stdin=False)
        command = await local.start(launch, UNRESTRICTED, printed.take)
        assert await finished(command) == 3
        # PATH, GIVEN, and what the shell adds: PWD; `_` is not there in every shell.
        first, session, _ = printed.of("stdout").decode().splitlines()
        assert (first, session) == (f"{tmp_path} g", str(command.pid))
        assert printed.of("stderr") == b"err\n"


async def test_stderr_comes_with_stdout_in_the_order_of_both() -> None:
    async with commands() as local:
        printed = Printed()
        line = "for i in 1 2 3; do echo out$i; echo err$i >&2; done"
        assert await finished(await local.start(sh(line), UNRESTRICTED, printed.take)) == 0
        assert printed.of("stdout").split() == [
            b"out1",
            b"err1",
            b"out2",
            b"err2",
            b"out3",
            b"err3",
        ]
        assert printed.of("stderr") == b""


async def test_input_is_written_and_ended() -> None:
    async with commands() as local:
        printed = Printed()
        command = await local.start(sh("cat; echo end", has_stdin=True), UNRESTRICTED, printed.take)
        await command.write(b"one\n")
        await printed.until(b"one\n")
        command.close_input()
        assert await finished(command) == 0
        assert printed.of("stdout") == b"one\nend\n"
        with pytest.raises(InputClosed):
            await command.write(b"late")


async def test_writing_waits_for_a_command_that_does_not_read_and_ends_with_it() -> None:
    async with commands() as local:
        command = await local.start(
            sh("exec sleep 1000", has_stdin=True), UNRESTRICTED, Printed().take
        )
        failed = []

        async def write() -> None:
            try:
                await command.write(bytes(10_000_000))
            except InputClosed as exc:
                failed.append(str(exc))

        with anyio.fail_after(WAIT_S):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(write)
                await anyio.wait_all_tasks_blocked()
                assert failed == []
                await command.stop()
        assert len(failed) == 1
        assert command.returncode == -signal.SIGTERM


async def test_a_command_without_input_reads_nothing() -> None:
    async with commands() as local:
        command = await local.start(sh("cat"), UNRESTRICTED, Printed().take)
        assert not command.takes_input
        with pytest.raises(InputClosed):
            await command.write(b"x")
        assert await finished(command) == 0


async def test_a_terminal_is_a_real_one_of_a_size_that_changes() -> None:
    line = (
        "tty; stty size; trap 'stty size; exit 5' WINCH; echo ready; while :; do sleep 0.05; done"
    )
    async with commands() as local:
        printed = Printed()
        command = await local.start(sh(line, terminal=TerminalSize()), UNRESTRICTED, printed.take)
        await printed.until(b"ready\r\n")
        command.resize(TerminalSize(rows=50, cols=132))
        assert await finished(command) == 5
        terminal, before, ready, after = printed.of("stdout").decode().split("\r\n")[:4]
        assert terminal.startswith("/dev/")
        assert (before, ready, after) == ("24 80", "ready", "50 132")


async def test_characters_at_a_terminal_are_signals_and_the_end_of_input() -> None:
    async with commands() as local:
        printed = Printed()
        command = await local.start(
            sh("cat; exec cat", terminal=TerminalSize()), UNRESTRICTED, printed.take
        )
        await command.write(b"one\n")
        await printed.until(b"one\r\none\r\n")
        command.close_input()
        await command.write(b"two\n")
        await printed.until(b"two\r\ntwo\r\n")
        await command.write(b"\x03")
        assert await finished(command) == -signal.SIGINT


async def test_a_shell_at_a_terminal_ends_at_once_although_it_ignores_sigterm() -> None:
    async with commands() as local:
        printed = Printed()
        launch = CommandLaunch(
            ["/bin/sh", "-i"], {"PATH": os.environ["PATH"], "PS1": "ready> "}, "/", TerminalSize()
        )
        command = await local.start(launch, UNRESTRICTED, printed.take)
        await printed.until(b"ready> ")
        await command.stop()
        assert command.returncode == -signal.SIGHUP


@pytest.mark.parametrize(
    "leave",
    [
        "sleep 1000 &",
        "setsid sleep 1000 &",
        "(setsid sleep 1000 &)",
        "(setsid sh -c '(setsid sleep 1000 &); sleep 1000' & )\n nohup sleep 1000 &",
        "setsid env -i sh -c 'trap \"\" TERM HUP INT; while :; do sleep 1; done' &",
    ],
)
@pytest.mark.parametrize("end", ["by itself", "stopped", "killed"])
async def test_what_a_command_leaves_behind_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leave: str, end: str
) -> None:
    monkeypatch.setattr(local_commands, "SPAWNER", QUICK_SPAWNER)
    async with commands() as local, Holders(tmp_path).watch() as holders:
        line = HOLD + leave + ("\nexit 0" if end == "by itself" else "\nwait; sleep 1000")
        command = await local.start(
            sh(line, {"HELD": str(holders.path)}), UNRESTRICTED, Printed().take
        )
        await holders.held(1)
        if end == "stopped":
            await command.stop()
        elif end == "killed":
            os.kill(command.pid, signal.SIGKILL)
        await finished(command)
        await holders.ended()


async def test_what_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    async with commands() as local, Holders(tmp_path).watch() as holders:
        line = "trap '' TERM; " + HOLD + "while :; do sleep 1; done"
        command = await local.start(
            sh(line, {"HELD": str(holders.path)}), UNRESTRICTED, Printed().take
        )
        await holders.held(1)
        await command.stop()
        assert command.returncode == -signal.SIGKILL
        await holders.ended()


async def test_a_process_that_forks_without_end_is_ended(tmp_path: Path) -> None:
    async with commands() as local, Holders(tmp_path).watch() as holders:
        # Each generation begins the next and ends; nobody ever finds the newest by its parent's id.
        line = HOLD + "f() { trap '' TERM; (f) & exit; }; f"
        command = await local.start(
            sh(line, {"HELD": str(holders.path)}), UNRESTRICTED, Printed().take
        )
        await holders.held(1)
        await command.stop()
        await holders.ended()


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone says what it ends first")
async def test_a_command_that_takes_all_memory_is_ended_before_the_server() -> None:
    async with commands() as local:
        printed = Printed()
        command = await local.start(
            sh("cat /proc/self/oom_score_adj /proc/$PPID/oom_score_adj"), UNRESTRICTED, printed.take
        )
        await finished(command)
        assert printed.of("stdout").split() == [b"500", b"500"]
    assert int(Path("/proc/self/oom_score_adj").read_text()) < 500


async def test_a_supervisor_that_is_killed_before_it_has_started_anything_is_no_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with commands() as local:
        # Nobody takes the order, as if who took it had died.
        async def order(*_: object) -> None:
            pass

        monkeypatch.setattr(local.spawner, "order", order)
        with pytest.raises(OSError, match="supervisor is gone"), anyio.fail_after(WAIT_S):
            await local.start(sh("true"), UNRESTRICTED, Printed().take)


async def test_the_supervisor_may_be_killed_and_the_command_ends(tmp_path: Path) -> None:
    async with commands() as local, Holders(tmp_path).watch() as holders:
        line = HOLD + "read go; kill -9 $PPID; sleep 1000"
        launch = sh(line, {"HELD": str(holders.path)}, has_stdin=True)
        command = await local.start(launch, UNRESTRICTED, Printed().take)
        await command.write(b"go\n")
        assert await finished(command) == -signal.SIGKILL
        await holders.held(1)
        await holders.ended()


VICTIM = """
import asyncio, os, sys
from app_server.host.commands.local_commands import LocalCommands
from app_server.host.commands.local_commands import CommandLaunch
from app_server.permissions.sandbox.policy import UNRESTRICTED

async def main():
    env = {"PATH": os.environ["PATH"], "HELD": sys.argv[1]}
    for line in sys.argv[2:]:
        launch = CommandLaunch(["/bin/sh", "-c", line], env, "/")
        await LocalCommands().start(launch, UNRESTRICTED, print)
    await asyncio.Event().wait()

asyncio.run(main())
"""


async def test_nothing_outlives_a_server_that_is_killed(tmp_path: Path) -> None:
    lines = [
        HOLD + "sleep 1000",
        HOLD + "setsid sleep 1000 & wait",
        HOLD + "trap '' TERM; while :; do sleep 1; done",
    ]
    async with Holders(tmp_path).watch() as holders:
        victim = await asyncio.create_subprocess_exec(
            sys.executable, "-c", VICTIM, str(holders.path), *lines
        )
        try:
            await holders.held(len(lines))
        finally:
            victim.kill()
            await victim.wait()
        await holders.ended()


async def test_output_after_the_end_of_its_writers_parent_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_commands, "SPAWNER", PATIENT_SPAWNER)
    monkeypatch.setattr(local_commands, "TRAILING_S", WAIT_S)
    os.mkfifo(gate := tmp_path / "gate")
    async with commands() as local:
        printed = Printed()
        line = "(read go < $GATE; echo late) & echo early"
        command = await local.start(sh(line, {"GATE": str(gate)}), UNRESTRICTED, printed.take)
        with anyio.fail_after(WAIT_S):
            while command.returncode is None:
                await anyio.sleep(0.01)
        await write_fifo(gate, "go\n")
        assert await finished(command) == 0
        assert printed.of("stdout") == b"early\nlate\n"
        assert command.has_all_output


async def test_descriptors_are_inherited_under_their_numbers() -> None:
    first, second = os.memfd_create("first"), os.memfd_create("second")
    os.write(first, b"1")
    os.write(second, b"2")
    async with commands() as local:
        printed = Printed()
        # In a pipeline, the shell itself would hold ends of the pipe for a moment.
        line = f"cat /proc/self/fd/{second} /proc/self/fd/{first}; ls /proc/$$/fd; true"
        launch = sh(line, inherited_fds=(first, second))
        command = await local.start(launch, UNRESTRICTED, printed.take)
        assert await finished(command) == 0
        # And no others: its stdin, stdout and stderr, and these two.
        assert printed.of("stdout").decode() == "21" + "".join(
            f"{number}\n" for number in sorted(map(str, (0, 1, 2, first, second)))
        )
    os.close(first)
    os.close(second)


@pytest.mark.parametrize(
    ("argv", "cwd", "number", "named"),
    [
        (["/no/such"], "/", errno.ENOENT, "/no/such"),
        (["no-such-program"], "/", errno.ENOENT, "no-such-program"),
        (["/etc/passwd"], "/", errno.EACCES, "/etc/passwd"),
        (["true"], "/no/such folder", errno.ENOENT, "/no/such folder"),
    ],
)
async def test_what_cannot_be_started_says_why(
    argv: list[str], cwd: str, number: int, named: str
) -> None:
    async with commands() as local:
        with pytest.raises(OSError, match=r"/|program") as caught:
            env = {"PATH": os.environ["PATH"]}
            await local.start(CommandLaunch(argv, env, cwd), UNRESTRICTED, Printed().take)
        assert (caught.value.errno, caught.value.filename) == (number, named)


async def test_a_spawner_that_died_is_replaced_and_its_commands_go_on() -> None:
    async with commands() as local:
        printed = Printed()
        first = await local.start(sh("cat", has_stdin=True), UNRESTRICTED, printed.take)
        before = local.spawner.pid
        assert before is not None
        os.kill(before, signal.SIGKILL)
        with anyio.fail_after(WAIT_S):
            while local.spawner.pid is not None:
                await anyio.lowlevel.checkpoint()
        second = await local.start(sh("exit 4"), UNRESTRICTED, Printed().take)
        assert await finished(second) == 4
        assert local.spawner.pid not in (None, before)
        await first.write(b"still here\n")
        await printed.until(b"still here\n")


async def test_nothing_is_started_after_the_end() -> None:
    async with commands() as local:
        await local.aclose()
        with pytest.raises(SpawnerGone):
            await local.start(sh("true"), UNRESTRICTED, Printed().take)


async def test_many_commands_at_once() -> None:
    async with commands() as local:
        statuses = []

        async def run(number: int) -> None:
            printed = Printed()
            command = await local.start(
                sh(f"echo {number}; exit {number}"), UNRESTRICTED, printed.take
            )
            statuses.append((await finished(command), printed.of("stdout")))

        async with anyio.create_task_group() as tasks:
            for number in range(64):
                tasks.start_soon(run, number)
        assert sorted(statuses) == sorted((n, f"{n}\n".encode()) for n in range(64))
