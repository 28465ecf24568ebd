"""The output of one program: kept for its end, or sent as it comes, up to a bound.

What comes within a moment is sent together. While the client cannot keep up, the program is not
read, and so has to wait.
Source: docs/tools.md, "Host methods".
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from app_server.host.commands.local_command import LocalCommand
from app_server.host.commands.reading import Stream

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
        """Take what was printed; never waits."""
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
        """Begin to read what a command prints that starts paused, and to send it."""
        self._command = command
        command.resume_reading()

    def end(self) -> None:
        """Send what is left."""
        if self._on_piece is not None:
            self._send()
        if self._timer is not None:
            self._timer.cancel()
        self._command = None

    def kept(self, stream: Stream) -> str:
        """Return what was kept of a stream as text; empty if it was sent."""
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
