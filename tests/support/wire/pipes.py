"""A client's end of a connection to a server under test."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Protocol

import anyio
from websockets.asyncio.client import ClientConnection, connect, unix_connect
from websockets.exceptions import ConcurrencyError, ConnectionClosed


class Pipe(Protocol):
    """A client's end of a connection."""

    async def receive(self) -> str:
        """Return the next message; EndOfStream when the server has closed."""

    async def send(self, text: str) -> None:
        """Send one message."""

    async def aclose(self) -> None:
        """Leave."""


class SocketPipe:
    """A WebSocket."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def receive(self) -> str:
        try:
            return str(await self.socket.recv())
        except ConnectionClosed as exc:
            raise anyio.EndOfStream from exc

    async def send(self, text: str) -> None:
        await self.socket.send(text)

    async def aclose(self) -> None:
        await self.socket.close()


@asynccontextmanager
async def socket_pipe(url: str, open_timeout_s: float, **more: Any) -> AsyncIterator[SocketPipe]:
    """Connect over a WebSocket or a Unix socket, without a handshake; `more` is for websockets."""
    options: dict[str, Any] = {
        "compression": None,
        "max_size": None,
        "open_timeout": open_timeout_s,
        "ping_interval": None,
        **more,
    }
    if url.startswith("unix://"):
        connection = unix_connect(url.removeprefix("unix://"), **options)
    else:
        connection = connect(url, proxy=None, **options)
    async with connection as socket:
        yield SocketPipe(socket)
        # The answer to the close stands behind what the test has not read.
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(socket.close)
            with suppress(ConnectionClosed, ConcurrencyError):
                while True:
                    await socket.recv()


class LinePipe:
    """A pair of byte streams with a message a line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer
        """For bytes that are no text, or no line."""

    async def receive(self) -> str:
        line = await self._reader.readline()
        if not line:
            raise anyio.EndOfStream
        return line.decode()

    async def send(self, text: str) -> None:
        self.writer.write(text.encode() + b"\n")
        await self.writer.drain()

    async def aclose(self) -> None:
        self.writer.close()
