"""Connections that an exec server makes on its machine, in the shape of processes without stderr.

Source: docs/environments.md, "The exec protocol".
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from app_server.host.exec.protocol import CHUNK_BYTES

CONNECT_S = 15.0


class _Ending(asyncio.StreamReaderProtocol):
    """Says when the other side has ended the connection; half of one is none."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self.ended = anyio.Event()

    def eof_received(self) -> bool:
        super().eof_received()
        self.ended.set()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.ended.set()


class TunnelChild:
    """A connection: what comes is its stdout, its stdin is what goes."""

    pid = 0
    returncode = 0

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ended: anyio.Event
    ) -> None:
        self.stdout = reader
        self.stderr = asyncio.StreamReader()
        self.stderr.feed_eof()
        self.stdin = writer
        self.ended = ended

    def write(self, data: bytes) -> None:
        """Queue what goes; never waits."""
        self.stdin.write(data)

    async def drain(self) -> None:
        """Wait until most of it has gone.

        Raises:
            OSError: the connection has ended.
        """
        await self.stdin.drain()


@asynccontextmanager
async def open_tunnel(host: str, port: int) -> AsyncIterator[TunnelChild]:
    """Connect, and stay so for as long as the context lasts.

    Raises:
        OSError: nobody listens there, or did not answer within CONNECT_S.
    """
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=CHUNK_BYTES)
    try:
        async with asyncio.timeout(CONNECT_S):
            transport, protocol = await loop.create_connection(lambda: _Ending(reader), host, port)
    except TimeoutError:
        raise OSError(f"no connection within {CONNECT_S:g} seconds") from None
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    try:
        yield TunnelChild(reader, writer, protocol.ended)
    finally:
        transport.abort()
