"""One program that a client runs: its input, its time, its end.

Source: docs/tools.md, "Host methods".
"""

from collections import deque
from dataclasses import dataclass, replace

import anyio

from app_server.host.commands.local_command import (
    CommandLaunch,
    InputClosed,
    LocalCommand,
    TerminalSize,
)
from app_server.host.commands.local_commands import LocalCommands
from app_server.host.programs.output import ProgramOutput
from app_server.permissions.confinement.confinement import Confinement

MAX_INPUT_BYTES = 16 * 1024 * 1024
"""Bytes of input that wait for a program to read them."""

TIMED_OUT = 124
"""The exit code of a program that had no time left, as timeout(1) has it."""

SIGNALLED = 128
"""Added to the number of a signal to make an exit code, as shells do."""


class ProgramRefused(Exception):
    """The program cannot do what a request asks of it; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramOrder:
    """The order to run a program."""

    kind: str
    """Its noun in errors: `command/exec`, `process`."""
    launch: CommandLaunch
    takes_input: bool
    timeout_s: float | None
    """None: as long as it takes."""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a program."""

    exit_code: int
    """TIMED_OUT, or SIGNALLED and the number of a signal, where it did not end by itself."""
    has_all_output: bool
    """False if somebody that it left behind held on to its output."""


class Program:
    """A program from its start to its end."""

    def __init__(self, order: ProgramOrder, output: ProgramOutput) -> None:
        """Start nothing yet; what it prints goes to `output`."""
        self.output = output
        self._order = order
        self._command: LocalCommand | None = None
        self._input: deque[bytes | None] = deque()
        """None closes it."""
        self._input_bytes = 0
        self._input_added = anyio.Event()
        self._is_input_closed = False
        self._is_terminated = False

    async def start(self, commands: LocalCommands, confinement: Confinement) -> None:
        """Start it, within what confines it.

        Raises:
            SandboxUnavailable: it cannot be confined on this machine.
            OSError: it cannot be started.
        """
        # Until it is known here, nothing could make it wait for whoever gets its output.
        launch = replace(self._order.launch, starts_paused=True)
        command = await commands.start(launch, confinement, self.output.take)
        self._command = command
        if self._is_terminated:
            command.terminate()

    async def run(self) -> Ended:
        """Wait for the end of what was started; cancelling ends it."""
        command = self._command
        assert command is not None
        self.output.open(command)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._feed, command)
                with anyio.move_on_after(self._order.timeout_s) as limit:
                    await command.finished.wait()
                if limit.cancelled_caught:
                    command.terminate()
                    await command.finished.wait()
                tasks.cancel_scope.cancel()
        finally:
            # What is left behind ends with it, also if nobody waits any more.
            command.terminate()
            if not command.finished.is_set():
                with anyio.CancelScope(shield=True):
                    await command.stop()
            self.output.end()
        if limit.cancelled_caught:
            return Ended(TIMED_OUT, command.has_all_output)
        code = command.returncode or 0
        return Ended(code if code >= 0 else SIGNALLED - code, command.has_all_output)

    def write(self, data: bytes, *, close: bool) -> None:
        """Write to its input, in order; `close` ends the input after that. Never waits.

        Raises:
            ProgramRefused: it takes no input, that was closed, or the program does not read.
        """
        if not self._order.takes_input:
            raise ProgramRefused(f"stdin streaming is not enabled for this {self._order.kind}")
        if data and self._is_input_closed:
            raise ProgramRefused("stdin is already closed")
        if self._input_bytes + len(data) > MAX_INPUT_BYTES:
            raise ProgramRefused(
                f"this {self._order.kind} does not read its stdin: {self._input_bytes} bytes wait, "
                f"and the limit is {MAX_INPUT_BYTES}"
            )
        if data:
            self._input.append(data)
            self._input_bytes += len(data)
        if close and not self._is_input_closed:
            self._is_input_closed = True
            self._input.append(None)
        self._input_added.set()

    def resize(self, size: TerminalSize) -> None:
        """Change the size of its terminal.

        Raises:
            ProgramRefused: it has none.
        """
        if self._order.launch.terminal is None or self._command is None:
            raise ProgramRefused("failed to resize PTY: process is not attached to a PTY")
        self._command.resize(size)

    def terminate(self) -> None:
        """Have it ended: SIGTERM now, SIGKILL after 2 s; never waits."""
        self._is_terminated = True
        if self._command is not None:
            self._command.terminate()

    async def _feed(self, command: LocalCommand) -> None:
        try:
            while True:
                while not self._input:
                    self._input_added = anyio.Event()
                    await self._input_added.wait()
                data = self._input.popleft()
                if data is None:
                    command.close_input()
                    return
                await command.write(data)
                self._input_bytes -= len(data)
        except InputClosed:
            # It reads no more; its end is reported, and what it did not read is nobody's.
            self._is_input_closed = True
            self._input.clear()
            self._input_bytes = 0
