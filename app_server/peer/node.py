"""Connections to another node of a group: frames of a client, or calls of this node.

Source: docs/scale.md, "How nodes reach one another".
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from app_server.peer.connection import WAIT_S, Client, introduced

MAX_FRAME_BYTES = 256 * 1024 * 1024
"""UTF-8 bytes of one message: the largest answer has 64 Mi characters."""
OPEN_S = 5.0
"""For a connection with its handshake."""
PING_S = 5.0
PONG_S = 10.0
"""Without the answer to a ping, another node counts as gone."""
CLOSE_S = 2.0


class NodeUnreachable(ConnectionError):
    """Nobody answers at a node's address, or somebody else does; the text says which."""

    def __init__(self, text: str, *, is_final: bool = False) -> None:
        """`is_final`: another try would find the same."""
        super().__init__(text)
        self.is_final = is_final


class NodeSocket:
    """Pipe of frames to another node."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket

    async def send(self, text: str) -> None:
        """Send a frame.

        Raises:
            anyio.EndOfStream: the node has gone.
        """
        try:
            await self._socket.send(text)
        except ConnectionClosed as exc:
            raise anyio.EndOfStream from exc

    async def receive(self) -> str:
        """Return the next frame.

        Raises:
            anyio.EndOfStream: the node has gone, or has been silent for too long.
        """
        try:
            return await self._socket.recv(decode=True)
        except ConnectionClosed as exc:
            raise anyio.EndOfStream from exc


@dataclass(frozen=True, slots=True)
class NodeAddress:
    """A node, as another one reaches it for one connection."""

    url: str
    """`ws://` or `wss://`."""
    token: str = field(repr=False)
    subprotocol: str

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[NodeSocket]:
        """Connect while the context lasts.

        Raises:
            NodeUnreachable
        """
        async with self._connected() as socket:
            yield NodeSocket(socket)

    @asynccontextmanager
    async def client(self, name: str, **capabilities: Any) -> AsyncIterator[Client]:
        """Connect as a client of this name, and shake hands, while the context lasts.

        Raises:
            NodeUnreachable
            RpcError: the node refuses the handshake.
        """
        async with self._connected() as socket:
            yield await introduced(socket, name, WAIT_S, capabilities)

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[ClientConnection]:
        try:
            socket = await connect(
                self.url,
                additional_headers={"Authorization": f"Bearer {self.token}"},
                subprotocols=[Subprotocol(self.subprotocol)],
                compression=None,
                proxy=None,
                max_size=MAX_FRAME_BYTES,
                open_timeout=OPEN_S,
                ping_interval=PING_S,
                ping_timeout=PONG_S,
                close_timeout=CLOSE_S,
            )
        except InvalidStatus as exc:
            status = exc.response.status_code
            raise NodeUnreachable(f"it answers {status}", is_final=status < 500) from exc
        except (OSError, WebSocketException, ValueError) as exc:
            raise NodeUnreachable(str(exc) or type(exc).__name__) from exc
        try:
            if socket.subprotocol != self.subprotocol:
                raise NodeUnreachable("something else than a node answers there", is_final=True)
            yield socket
        finally:
            # Also for who is cancelled: the other end would keep it until a ping fails.
            with anyio.CancelScope(shield=True):
                await socket.close()
