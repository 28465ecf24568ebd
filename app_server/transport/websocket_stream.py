"""Messages on one WebSocket: each in a frame, a large one in several.

Source: RFC 6455, section 5.4; docs/wire.md, "Framing".
"""

import asyncio
from collections.abc import Sequence

import anyio
from websockets.asyncio.server import ServerConnection
from websockets.exceptions import ConnectionClosed, ProtocolError

from app_server.rpc.message_stream import ClientGone
from app_server.transport.text_frames import text_frame

FRAGMENT_CHARS = 1024 * 1024
"""Of a message in one frame; a longer one is sent in several (RFC 6455, section 5.4)."""


class WebSocketStream:
    """A MessageStream over one WebSocket."""

    def __init__(self, socket: ServerConnection) -> None:
        self._socket = socket
        self._sending = asyncio.Lock()
        self._in_message = False
        """Whether the last frame of a large message has still to be sent."""

    async def receive(self) -> str:
        """Return the next message; a binary frame is read as text, so that it gets its answer.

        Bytes of it that are no UTF-8 are surrogates, which no JSON can be read from.
        """
        try:
            message = await self._socket.recv(decode=None)
        except ConnectionClosed as exc:
            raise ClientGone from exc
        if isinstance(message, bytes):
            return message.decode(errors="surrogateescape")
        return message

    async def send(self, *texts: str) -> None:
        """Send messages, a frame each, in one write; a large one in frames of FRAGMENT_CHARS.

        Cancelling in the middle of a large message leaves a stream that can only be closed.
        """
        try:
            # No message may stand between the frames of another one.
            async with self._sending:
                await self._send_in_order(texts)
        except (ConnectionClosed, ProtocolError) as exc:
            raise anyio.BrokenResourceError from exc

    async def _send_in_order(self, texts: Sequence[str]) -> None:
        small: list[str] = []
        for text in texts:
            if len(text) <= FRAGMENT_CHARS:
                small.append(text)
                continue
            await self._send_small(small)
            small.clear()
            await self._send_large(text)
        await self._send_small(small)

    async def _send_small(self, texts: Sequence[str]) -> None:
        if not texts:
            return
        socket = self._socket
        if self._in_message:
            raise anyio.BrokenResourceError
        # `ServerConnection.send` makes a write of each frame.
        async with socket.send_context():
            socket.transport.write(b"".join([text_frame(text.encode()) for text in texts]))

    async def _send_large(self, text: str) -> None:
        """Send a message in pieces, between which others run."""
        socket = self._socket
        for start in range(0, len(text), FRAGMENT_CHARS):
            end = start + FRAGMENT_CHARS
            piece, is_last = text[start:end].encode(), end >= len(text)
            async with socket.send_context():
                if start == 0:
                    socket.protocol.send_text(piece, fin=is_last)
                else:
                    socket.protocol.send_continuation(piece, fin=is_last)
                self._in_message = not is_last
                socket.transport.write(b"".join(socket.protocol.data_to_send()))

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        """Close with a code and a reason; closing twice is harmless."""
        await self._socket.close(code, reason)
