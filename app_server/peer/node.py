"""Connections to another node of a group: frames of a client, or calls of this node.

Source: docs/scale.md, "How nodes reach one another".
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import anyio
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.typing import Subprotocol

from app_server.peer.connection import WAIT_S, Client, SocketFrames, introduced

MAX_FRAME_BYTES = 256 * 1024 * 1024
"""UTF-8 bytes of one message: the largest answer has 64 Mi characters."""
OPEN_S = 5.0
"""For a connection with its handshake."""
PING_S = 5.0
PONG_S = 10.0
"""Without the answer to a ping, another node counts as gone."""
STEP_S = 1.0
"""Between looks at whether the node is silent."""
CLOSE_S = 2.0
TRY_AGAIN_LATER = 1013
"""Code with which a server closes a connection that is read too slowly; docs/wire.md, "Bounds"."""


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
        self._received = 0
        """Frames."""
        self._is_reading = False

    @property
    def was_given_up(self) -> bool:
        """Whether the node has closed it, as it was read too slowly."""
        return self._socket.close_code == TRY_AGAIN_LATER

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
        self._is_reading = True
        try:
            return await self._socket.recv(decode=True)
        except ConnectionClosed as exc:
            raise anyio.EndOfStream from exc
        finally:
            self._is_reading = False
            self._received += 1

    async def watch(self) -> None:
        """Ping the node until it has gone; end the connection if it is silent for PONG_S.

        Time in which nobody reads does not count: a pong stands behind what is not read yet.
        """
        while True:
            await asyncio.sleep(PING_S)
            answered = asyncio.ensure_future(self._ping())
            try:
                silent_s = 0.0
                while not answered.done() and silent_s < PONG_S:
                    before, was_reading = self._received, self._is_reading
                    await asyncio.wait([answered], timeout=STEP_S)
                    if not (was_reading and self._received == before):
                        silent_s = 0.0
                    else:
                        silent_s += STEP_S
            finally:
                answered.cancel()
            if silent_s >= PONG_S:
                self._socket.transport.abort()
                return

    async def _ping(self) -> None:
        with suppress(ConnectionClosed):
            await (await self._socket.ping())


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
        # The library counts as silence what is not read.
        async with self._connected(ping_s=None) as socket:
            pipe = NodeSocket(socket)
            watching = asyncio.create_task(pipe.watch())
            try:
                yield pipe
            finally:
                watching.cancel()

    @asynccontextmanager
    async def client(self, name: str, **capabilities: Any) -> AsyncIterator[Client]:
        """Connect as a client of this name, and shake hands, while the context lasts.

        Raises:
            NodeUnreachable
            RpcError: the node refuses the handshake.
        """
        async with self._connected() as socket:
            yield await introduced(SocketFrames(socket), name, WAIT_S, capabilities)

    @asynccontextmanager
    async def _connected(self, ping_s: float | None = PING_S) -> AsyncIterator[ClientConnection]:
        try:
            socket = await connect(
                self.url,
                additional_headers={"Authorization": f"Bearer {self.token}"},
                subprotocols=[Subprotocol(self.subprotocol)],
                compression=None,
                proxy=None,
                max_size=MAX_FRAME_BYTES,
                open_timeout=OPEN_S,
                ping_interval=ping_s,
                ping_timeout=PONG_S,
                close_timeout=CLOSE_S,
            )
        except InvalidStatus as exc:
            raise NodeUnreachable(f"it answers {exc.response.status_code}") from exc
        except (OSError, WebSocketException, ValueError) as exc:
            raise NodeUnreachable(str(exc) or type(exc).__name__) from exc
        try:
            if socket.subprotocol != self.subprotocol:
                raise NodeUnreachable("something else than a node answers there")
            yield socket
        finally:
            # Also for who is cancelled: the other end would keep it until a ping fails.
            with anyio.CancelScope(shield=True):
                await socket.close()
