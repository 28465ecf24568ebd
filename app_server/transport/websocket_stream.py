"""Messages on one WebSocket: each in a frame, a large one in several.

Source: RFC 6455, section 5.4; docs/wire.md, "Framing".
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import anyio
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed, ProtocolError
from websockets.protocol import State

from app_server.rpc.message_stream import ClientGone

READ_BYTES = 4096
"""Of one read of a socket: several hundred of the smallest frames, which take milliseconds."""
MAX_UNSENT_BYTES = 8 * 1024 * 1024
"""Waiting for a client while it is read. Its messages alone are far below: more are pongs, for
which no task waits."""


class JoiningTransport(asyncio.Transport):
    """The transport of a socket, with writes joined on request and reading paused behind a bound.

    While more than `MAX_UNSENT_BYTES` wait to be sent the socket is not read.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        super().__init__()
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._held: list[bytes | bytearray | memoryview] | None = None
        """Written since `hold`, in order; None while writes go out at once."""
        self._most_held = 0
        """Writes: with this one they go out; 0 is no number that is reached."""
        self._is_paused = False
        """By the connection, whose queue of frames is full."""
        self._is_behind = False
        """Above the bound of unsent bytes."""

    def hold_all(self) -> bool:
        """Join writes until `flush`, for a block that does not wait; False if others do already."""
        if self._held is not None:
            return False
        self._held, self._most_held = [], 0
        return True

    def hold(self, count: int) -> None:
        """Join the next `count` writes, or those until the next turn of the event loop.

        They go out with the last one, so that its sender waits for a client that reads slowly.
        """
        if self._held is None:
            self._held, self._most_held = [], count
            self._loop.call_soon(self.flush)

    def flush(self) -> None:
        """Write what was held."""
        held, self._held = self._held, None
        if held:
            self._write(held[0] if len(held) == 1 else b"".join(held))

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Write, or hold until `flush`."""
        if self._held is None:
            self._write(data)
            return
        self._held.append(data)
        if len(self._held) == self._most_held:
            self.flush()

    def _write(self, data: bytes | bytearray | memoryview) -> None:
        self._transport.write(data)
        # The transport has paused its protocol far below, so that `writing_resumed` comes.
        if not self._is_behind and self._transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            self._is_behind = True
            self._transport.pause_reading()

    def writing_resumed(self) -> None:
        """Resume reading after the bound of unsent bytes was passed; the protocol calls it."""
        if self._is_behind:
            self._is_behind = False
            if not self._is_paused:
                self._transport.resume_reading()

    def pause_reading(self) -> None:
        """Pause reading for the connection."""
        self._is_paused = True
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading for the connection, unless too much is unsent."""
        self._is_paused = False
        if not self._is_behind:
            self._transport.resume_reading()

    def is_reading(self) -> bool:
        """Whether the socket is read."""
        return self._transport.is_reading()

    def write_eof(self) -> None:
        """Close the writing end behind what was written."""
        self.flush()
        self._transport.write_eof()

    def can_write_eof(self) -> bool:
        """Whether the writing end can be closed alone."""
        return self._transport.can_write_eof()

    def close(self) -> None:
        """Close behind what was written."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._held = None
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether the transport is closed or being closed."""
        return self._transport.is_closing()

    def get_write_buffer_size(self) -> int:
        """Return the bytes that the socket has not taken."""
        return self._transport.get_write_buffer_size() + sum(map(len, self._held or ()))

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Return the marks between which the protocol may write, low and high."""
        return self._transport.get_write_buffer_limits()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set the marks at which the protocol's writing is paused and resumed."""
        self._transport.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what the socket's transport knows of it."""
        return self._transport.get_extra_info(name, default)


class FlowControlledConnection(ServerConnection, asyncio.BufferedProtocol):
    """A WebSocket connection with small reads and joined writes."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the socket over."""
        assert isinstance(transport, asyncio.Transport)
        self._buffer = bytearray(READ_BYTES)
        self._end: asyncio.TimerHandle | None = None
        """Of a client that is to hang up."""
        self._writes = JoiningTransport(transport)
        super().connection_made(self._writes)

    def get_buffer(self, sizehint: int) -> bytearray:
        """Return the buffer of the next read."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Take what was read, and answer its control frames in one write."""
        is_first = self._writes.hold_all()
        try:
            self.data_received(bytes(memoryview(self._buffer)[:nbytes]))
        finally:
            if is_first:
                self._writes.flush()
        if self.state is State.CLOSING and self._end is None:
            # The library bounds the wait for a client's end only where it sends something itself.
            self._end = self.loop.call_later(self.close_timeout or 0, self._writes.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        """End the connection."""
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)

    def resume_writing(self) -> None:
        """Resume writing, and reading where it waited for this."""
        super().resume_writing()
        self._writes.writing_resumed()

    async def send_texts(self, texts: Sequence[str]) -> None:
        """Send messages, a frame each, in one write; waits while the client reads too little.

        Raises:
            ConnectionClosed: the connection is closed.
        """
        if len(texts) > 1:
            self._writes.hold(len(texts))
        try:
            for text in texts:
                await self.send(text)
        finally:
            self._writes.flush()


FRAGMENT_CHARS = 1024 * 1024
"""Of a message in one frame; a longer one is sent in several (RFC 6455, section 5.4)."""


class WebSocketStream:
    """A MessageStream over one WebSocket."""

    def __init__(self, socket: FlowControlledConnection) -> None:
        self.socket = socket
        self._large: dict[anyio.CancelScope, anyio.Event] = {}
        """The messages that are being sent in several frames, each with its end."""

    async def receive(self) -> str:
        """Return the next message; a binary frame is read as text, so that it gets its answer.

        Bytes of it that are no UTF-8 are surrogates, which no JSON can be read from.
        """
        try:
            message = await self.socket.recv(decode=None)
        except ConnectionClosed as exc:
            raise ClientGone from exc
        if isinstance(message, bytes):
            return message.decode(errors="surrogateescape")
        return message

    async def send(self, *texts: str) -> None:
        """Send messages in order, a frame each, in one write; a large one in several frames.

        Cancelling in the middle of a large message leaves a stream that can only be closed.
        """
        small: list[str] = []
        try:
            for text in texts:
                if len(text) <= FRAGMENT_CHARS:
                    small.append(text)
                    continue
                await self.socket.send_texts(small)
                small.clear()
                await self._send_large(text)
            await self.socket.send_texts(small)
        except (ConnectionClosed, ProtocolError) as exc:
            raise anyio.BrokenResourceError from exc

    async def _send_large(self, text: str) -> None:
        with anyio.CancelScope() as scope:
            self._large[scope] = anyio.Event()
            try:
                await self.socket.send(_fragments(text))
            finally:
                self._large.pop(scope).set()
        if scope.cancelled_caught:
            raise anyio.BrokenResourceError

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        """Close with a code and a reason, also in a message; closing twice is harmless."""
        # The library has a code of its own for a close while it sends a message.
        for scope, ended in list(self._large.items()):
            scope.cancel()
            await ended.wait()
        await self.socket.close(code, reason)


async def _fragments(text: str) -> AsyncIterator[str]:
    """Give a message in pieces, between which others run."""
    for start in range(0, len(text), FRAGMENT_CHARS):
        yield text[start : start + FRAGMENT_CHARS]
        await asyncio.sleep(0)
