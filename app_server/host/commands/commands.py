"""Starts commands on this machine; none outlives this process, nor what it leaves behind.

Source: docs/tools.md, "Commands".
"""

import fcntl
import os
import socket
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import anyio
import anyio.to_thread

from app_server.host.commands.command import OnOutput, RunningCommand, set_size
from app_server.host.commands.launch import CommandLaunch
from app_server.host.commands.spawning import Spawner
from app_server.host.sandbox.linux.process_limits import ServerGroup

START_S = 30.0
"""For a command to be started; a disk that sleeps may take long."""

PIPE_BYTES = (1024 * 1024, 256 * 1024)
"""Capacities of a pipe in bytes, the first that the system allows: fewer and larger reads."""


class Commands:
    """The commands of one server."""

    def __init__(self) -> None:
        self._group = ServerGroup()
        self.spawner = Spawner(self._group)
        self._running: set[RunningCommand] = set()

    async def start(self, launch: CommandLaunch, on_output: OnOutput) -> RunningCommand:
        """Start a command; it runs until it ends or is stopped, not only while it is awaited.

        Raises:
            OSError: it cannot be started; `filename` names the folder or program.
        """
        ours, theirs = socket.socketpair()
        command = RunningCommand(ours, self._running.discard)
        self._running.add(command)
        try:
            with ExitStack() as given:
                ends = _attach(command, launch, on_output, given)
                if launch.is_held:
                    command.hold()
                given.callback(theirs.close)
                order = {
                    "argv": list(launch.argv),
                    "env": dict(launch.env),
                    "cwd": launch.cwd,
                    "fds": [*range(len(ends.fds)), *launch.inherited_fds],
                    "terminal": ends.terminal,
                    "wrapped": launch.is_wrapped,
                    "placeholders": {str(fd): name for fd, name in launch.placeholders},
                }
                fds = [theirs.fileno(), *ends.fds, *launch.inherited_fds]
                await self.spawner.order(order, fds)
                # Only then the end of a supervisor that is killed at once is seen here.
                theirs.close()
                with anyio.fail_after(START_S):
                    await command.started
        except BaseException as exc:
            # The end of the control socket ends what was begun.
            command.abandon()
            if isinstance(exc, TimeoutError):
                raise OSError(0, f"it was not started within {START_S:.0f} s") from exc
            raise
        return command

    async def prepare(self) -> None:
        """Have what starts commands ready.

        Raises:
            OSError: it cannot be started.
        """
        await self.spawner.prepare()

    async def aclose(self) -> None:
        """End all commands, and then what starts them."""
        async with anyio.create_task_group() as tasks:
            for command in list(self._running):
                tasks.start_soon(command.stop)
        await self.spawner.aclose()
        await anyio.to_thread.run_sync(self._group.remove)


@dataclass(frozen=True, slots=True)
class _Ends:
    """The command's ends of its pipes or its terminal."""

    fds: list[int]
    """Its stdin, stdout and stderr; empty with a controlling terminal."""
    terminal: str | None = None
    """The path of its controlling terminal."""


def _attach(
    command: RunningCommand, launch: CommandLaunch, on_output: OnOutput, given: ExitStack
) -> _Ends:
    """Make pipes or a terminal; what the command gets of them is closed here with `given`."""
    if launch.terminal is not None:
        ours, slave = os.openpty()
        # As long as nobody has the other side open, reading ours would fail.
        given.callback(os.close, slave)
        set_size(ours, launch.terminal)
        command.attach_terminal(ours, on_output)
        if launch.takes_terminal:
            return _Ends([slave] * 3)
        return _Ends([], os.ttyname(slave))
    stdin, theirs_in = None, -1
    if launch.has_stdin:
        theirs_in, stdin = os.pipe()
    else:
        theirs_in = os.open(os.devnull, os.O_RDONLY)
    given.callback(os.close, theirs_in)
    stdout, theirs_out = _output_pipe(given)
    stderr, theirs_err = (None, theirs_out) if launch.merges_stderr else _output_pipe(given)
    command.attach_pipes(stdin, stdout, stderr, on_output)
    return _Ends([theirs_in, theirs_out, theirs_err])


def _output_pipe(given: ExitStack) -> tuple[int, int]:
    ours, theirs = os.pipe()
    given.callback(os.close, theirs)
    if sys.platform == "linux":
        # A user's pipes together have a bound; then it stays at what it is.
        for size in PIPE_BYTES:
            with suppress(OSError):
                fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, size)
                break
    return ours, theirs
