"""A client's end of a connection to a server under test."""

import asyncio
from typing import Protocol

import anyio
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed


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


class LinePipe:
    """A pair of byte streams with a message a line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> str:
        line = await self._reader.readline()
        if not line:
            raise anyio.EndOfStream
        return line.decode()

    async def send(self, text: str) -> None:
        self._writer.write(text.encode() + b"\n")
        await self._writer.drain()

    async def aclose(self) -> None:
        self._writer.close()
