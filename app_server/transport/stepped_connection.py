"""A WebSocket connection that keeps neither the event loop nor memory from others.

Source: docs/wire.md, "Bounds".
"""

import asyncio
from collections import deque
from typing import Any

from websockets.asyncio.server import ServerConnection
from websockets.frames import Frame, Opcode
from websockets.protocol import SEND_EOF, State

from app_server.transport.frame_steps import FrameSteps, Step
from app_server.transport.text_frames import payload_of

MAX_UNSENT_BYTES = 8 * 1024 * 1024
"""That wait for a client while its frames are taken. Its messages alone are far below: more are
pongs, for which no task waits."""


class SteppedConnection(ServerConnection):
    """Takes what the client sends in steps of a few frames, between which others run.

    While more than MAX_UNSENT_BYTES wait to be sent to it, nothing of the client is taken.
    """

    def __init__(self, *arguments: Any, max_message_bytes: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._cutter = FrameSteps(max_message_bytes)
        self._steps: deque[Step] = deque()
        """Of at most one read of the socket: there is no other one while there are any."""
        self._has_next = False
        """Whether the next step is scheduled."""
        self._is_full = False
        """Whether enough frames wait for who receives."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket over."""
        super().connection_made(transport)
        self.recv_messages.pause = self._pause
        self.recv_messages.resume = self._resume

    def data_received(self, data: bytes) -> None:
        """Take what one read of the socket gave, or its first step."""
        self._steps.extend(self._cutter.cut(data))
        self._take_step()

    def send_data(self) -> None:
        """Send what the frames of a step are answered with in one write.

        Since CPython 3.12 each write counts all that were not sent: a client that reads no pongs
        made its own ones dearer and dearer, up to a millisecond each.
        """
        writes = self.protocol.writes
        if len(writes) > 1:
            # The end of what is sent is an empty write, the last one.
            ends = [SEND_EOF] if writes[-1] == SEND_EOF else []
            self.protocol.writes = [b"".join(writes), *ends]
        super().send_data()

    def resume_writing(self) -> None:
        """Take note that little waits to be sent."""
        super().resume_writing()
        self._go_on()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget what was not taken: it has no answer, and could get none."""
        self._steps.clear()
        super().connection_lost(exc)

    def _pause(self) -> None:
        self._is_full = True
        self._go_on()

    def _resume(self) -> None:
        self._is_full = False
        self._go_on()

    def _take_step(self) -> None:
        self._has_next = False
        if self._steps and not self._waits:
            self._take(self._steps.popleft())
        self._go_on()

    def _take(self, step: Step) -> None:
        if isinstance(step, bytes):
            super().data_received(step)
        elif self.protocol.state is not State.OPEN:
            super().data_received(b"".join(step))
        else:
            for frame in step:
                self.recv_messages.put(Frame(Opcode.TEXT, payload_of(frame)))

    @property
    def _waits(self) -> bool:
        # Above the bound the transport has paused writing, so that `resume_writing` comes.
        return self._is_full or self.transport.get_write_buffer_size() > MAX_UNSENT_BYTES

    def _go_on(self) -> None:
        """Read the socket, or see to it that the next step is taken, if it may be."""
        if self.transport.is_closing():
            return
        if not self._steps and not self._waits:
            self.transport.resume_reading()
            return
        self.transport.pause_reading()
        if self._steps and not self._waits and not self._has_next:
            self._has_next = True
            self.loop.call_soon(self._take_step)
