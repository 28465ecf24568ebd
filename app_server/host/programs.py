"""Programs that clients run: input, output, time limits, end, and ownership.

Output is kept for the end, or sent as it comes, up to a bound; what comes within a moment is sent
together. While the client cannot keep up, the program is not read, and so has to wait.
Source: docs/tools.md, "Host methods".
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import anyio

from app_server.host.commands.local_commands import (
    CommandLaunch,
    InputClosed,
    LocalCommand,
    LocalCommands,
    TerminalSize,
)
from app_server.host.commands.output import Stream
from app_server.permissions.sandbox.policy import EffectivePolicy

MERGE_S = 0.01
"""Output within this time is sent together; the first piece after a pause at once."""

PIECE_BYTES = 256 * 1024
"""Sent at once, at most; in base64 it fits into a message."""

BUSY_CHARS = 6 * 1024 * 1024
"""Characters that wait to be sent to the client, above which the program is not read."""

LOOK_S = 0.005
"""Between two looks at whether that has become less than half."""

OnPiece: TypeAlias = Callable[[Stream, bytes, bool], None]
"""Takes a piece, and whether it is the last one because of the bound."""

STREAMS: tuple[Stream, ...] = ("stdout", "stderr")


@dataclass(slots=True)
class _Flow:
    """One of the two streams."""

    pending: bytearray = field(default_factory=bytearray)
    left: int | None = None
    """Bytes until the bound; None without one."""
    cap_reached: bool = False
    is_ended: bool = False
    """The last piece has been sent."""


class ProgramOutput:
    """The output of one program. Used from the event loop alone."""

    def __init__(
        self, cap: int | None, on_piece: OnPiece | None, waiting_chars: Callable[[], int]
    ) -> None:
        """Bound each stream to `cap` bytes, None for no bound; `on_piece` None keeps all of it.

        `waiting_chars` says how much waits to be sent to the client.
        """
        self._flows: dict[Stream, _Flow] = {name: _Flow(left=cap) for name in STREAMS}
        self._on_piece = on_piece
        self._waiting_chars = waiting_chars
        self._sent_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._paused: LocalCommand | None = None
        self._command: LocalCommand | None = None

    def take(self, stream: Stream, data: bytes) -> None:
        """Take a chunk of output without waiting."""
        flow = self._flows[stream]
        if flow.left is not None:
            flow.cap_reached = flow.cap_reached or len(data) > flow.left
            data = data[: flow.left]
            flow.left -= len(data)
        flow.pending += data
        self._discard_above_cap()
        if self._on_piece is None or self._command is None:
            return
        due = self._sent_at + MERGE_S - time.monotonic()
        if due <= 0 or len(flow.pending) >= PIECE_BYTES:
            self._send()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(due, self._send)

    def open(self, command: LocalCommand) -> None:
        """Resume reading a command that starts paused, and send its output."""
        self._command = command
        command.resume_reading()

    def end(self) -> None:
        """Send the remaining output."""
        if self._on_piece is not None:
            self._send()
        if self._timer is not None:
            self._timer.cancel()
        self._command = None

    def kept(self, stream: Stream) -> str:
        """Return the kept text of a stream; empty if it was sent."""
        return self._flows[stream].pending.decode(errors="replace")

    def cap_reached(self, stream: Stream) -> bool:
        """Whether there was more than the bound."""
        return self._flows[stream].cap_reached

    def _send(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._sent_at = time.monotonic()
        assert self._on_piece is not None
        for stream, flow in self._flows.items():
            while flow.pending or (flow.cap_reached and not flow.is_ended):
                piece = bytes(flow.pending[:PIECE_BYTES])
                del flow.pending[:PIECE_BYTES]
                flow.is_ended = flow.cap_reached and not flow.pending
                self._on_piece(stream, piece, flow.is_ended)
        self._pause_if_busy()

    def _discard_above_cap(self) -> None:
        if self._command is None:
            return
        for stream, flow in self._flows.items():
            if flow.cap_reached:
                self._command.discard(stream)

    def _pause_if_busy(self) -> None:
        if self._command is None or self._paused is not None:
            return
        if self._waiting_chars() > BUSY_CHARS:
            self._paused = self._command
            self._paused.pause_reading()
            asyncio.get_running_loop().call_later(LOOK_S, self._look)

    def _look(self) -> None:
        if self._paused is None:
            return
        if self._command is not None and self._waiting_chars() > BUSY_CHARS // 2:
            asyncio.get_running_loop().call_later(LOOK_S, self._look)
            return
        self._paused.resume_reading()
        self._paused = None


MAX_INPUT_BYTES = 16 * 1024 * 1024
"""Bytes of input that wait for a program to read them."""

TIMED_OUT = 124
"""The exit code of a program that had no time left, as timeout(1) has it."""

SIGNALLED = 128
"""Added to the number of a signal to make an exit code, as shells do."""


class ProgramRefused(Exception):
    """Refused request about a program; the text says why."""


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
        """Prepare a program; its output goes to `output`."""
        self.output = output
        self._order = order
        self._command: LocalCommand | None = None
        self._input: deque[bytes | None] = deque()
        """None closes it."""
        self._input_bytes = 0
        self._input_added = anyio.Event()
        self._is_input_closed = False
        self._is_terminated = False

    async def start(self, commands: LocalCommands, sandbox_policy: EffectivePolicy) -> None:
        """Start it under a sandbox policy.

        Raises:
            SandboxUnavailable: it cannot be confined on this machine.
            OSError: it cannot be started.
        """
        # Until it is known here, nothing could make it wait for whoever gets its output.
        launch = replace(self._order.launch, starts_paused=True)
        command = await commands.start(launch, sandbox_policy, self.output.take)
        self._command = command
        if self._is_terminated:
            command.terminate()

    async def run(self) -> Ended:
        """Wait for its end; cancelling ends it."""
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
        """Terminate the program: SIGTERM now, SIGKILL after 2 s; never waits."""
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


MAX_PROGRAMS = 64
"""Of one owner and kind that run at once."""

Owner: TypeAlias = Hashable


class Programs:
    """The programs that run now, by owner and id."""

    def __init__(self, kind: str, name_of_id: str) -> None:
        """`kind` and `name_of_id` are for errors, such as `process`, `process handle`."""
        self._kind = kind
        self._name_of_id = name_of_id
        self._running: dict[Owner, dict[str | object, Program]] = {}

    @contextmanager
    def entered(self, owner: Owner, program_id: str | None, program: Program) -> Iterator[None]:
        """Register a program while the context lasts; without an id it cannot be looked up.

        Raises:
            ProgramRefused: the owner has one of this id, or MAX_PROGRAMS.
        """
        of_owner = self._running.setdefault(owner, {})
        key = object() if program_id is None else program_id
        if key in of_owner:
            duplicate = f"{self._kind} {self._name_of_id.removeprefix(self._kind).strip()}"
            raise ProgramRefused(f'duplicate active {duplicate}: "{program_id}"')
        if len(of_owner) >= MAX_PROGRAMS:
            raise ProgramRefused(f"a connection runs at most {MAX_PROGRAMS} {self._kind} at once")
        of_owner[key] = program
        try:
            yield
        finally:
            del of_owner[key]
            if not of_owner:
                self._running.pop(owner, None)

    def find(self, owner: Owner, program_id: str) -> Program:
        """Return a program.

        Raises:
            ProgramRefused: none of this id runs.
        """
        program = self._running.get(owner, {}).get(program_id)
        if program is None:
            raise ProgramRefused(f'no active {self._kind} for {self._name_of_id} "{program_id}"')
        return program

    def terminate_all(self, owner: Owner) -> None:
        """Have all programs of an owner ended; never waits."""
        for program in self._running.get(owner, {}).values():
            program.terminate()
