"""Messages on one WebSocket: each in a frame, a large one in several.

Source: RFC 6455, section 5.4; docs/wire.md, "Framing".
"""

import asyncio
from collections.abc import AsyncIterator

import anyio
from websockets.exceptions import ConnectionClosed, ProtocolError

from app_server.rpc.message_stream import ClientGone
from app_server.transport.flow_control import FlowControlledConnection

FRAGMENT_CHARS = 1024 * 1024
"""Of a message in one frame; a longer one is sent in several (RFC 6455, section 5.4)."""


class WebSocketStream:
    """A MessageStream over one WebSocket."""

    def __init__(self, socket: FlowControlledConnection) -> None:
        self._socket = socket
        self._large: dict[anyio.CancelScope, anyio.Event] = {}
        """The messages that are being sent in several frames, each with its end."""

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
        """Send messages in order, a frame each, in one write; a large one in several frames.

        Cancelling in the middle of a large message leaves a stream that can only be closed.
        """
        small: list[str] = []
        try:
            for text in texts:
                if len(text) <= FRAGMENT_CHARS:
                    small.append(text)
                    continue
                await self._socket.send_texts(small)
                small.clear()
                await self._send_large(text)
            await self._socket.send_texts(small)
        except (ConnectionClosed, ProtocolError) as exc:
            raise anyio.BrokenResourceError from exc

    async def _send_large(self, text: str) -> None:
        with anyio.CancelScope() as scope:
            self._large[scope] = anyio.Event()
            try:
                await self._socket.send(_fragments(text))
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
        await self._socket.close(code, reason)


async def _fragments(text: str) -> AsyncIterator[str]:
    """Give a message in pieces, between which others run."""
    for start in range(0, len(text), FRAGMENT_CHARS):
        yield text[start : start + FRAGMENT_CHARS]
        await asyncio.sleep(0)
