"""Work of the exec server itself, and its connections, in the shape of processes without stderr.

Source: docs/environments.md, "The exec protocol".
"""

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

import anyio

from app_server.host.exec.protocol import CHUNK_BYTES, ProtocolBroken

logger = logging.getLogger(__name__)

FAILED = 1


class ServedChild(asyncio.ReadTransport):
    """Some work of the exec server; it reads `input`, and prints."""

    pid = 0

    def __init__(self, input_bytes: int) -> None:
        """`input_bytes` is all that it takes, and the longest line of it."""
        super().__init__()
        self.stdout = asyncio.StreamReader(limit=CHUNK_BYTES)
        self.stdout.set_transport(self)
        self.stderr = asyncio.StreamReader()
        self.stderr.feed_eof()
        self.stdin = self
        self.input = asyncio.StreamReader(limit=input_bytes)
        self.ended = anyio.Event()
        self.returncode: int | None = None
        self.size: int | None = None
        """Of a file that it prints, in bytes, as it was opened."""
        self._input_left = input_bytes
        self._input_ended = False
        self._may_print = anyio.Event()
        self._may_print.set()

    async def print(self, data: bytes) -> None:
        """Send output; waits while the client does not read."""
        for start in range(0, len(data), CHUNK_BYTES):
            await self._may_print.wait()
            self.stdout.feed_data(data[start : start + CHUNK_BYTES])

    def finish(self, code: int) -> None:
        """End the work with an exit code."""
        self.returncode = code
        self.stdout.feed_eof()
        self.ended.set()

    # What a relay calls.

    def write(self, data: bytes) -> None:
        """Take input.

        Raises:
            ProtocolBroken: more than it takes.
        """
        self._input_left -= len(data)
        if self._input_left < 0:
            raise ProtocolBroken("more input than is taken")
        self.input.feed_data(data)

    async def drain(self) -> None:
        """Return at once: input has a bound as a whole."""

    def is_closing(self) -> bool:
        """Whether it takes no input."""
        return self._input_ended or self.ended.is_set()

    def close(self) -> None:
        """End its input."""
        if not self._input_ended:
            self._input_ended = True
            self.input.feed_eof()

    def pause_reading(self) -> None:
        """Pause reading its output."""
        self._may_print = anyio.Event()

    def resume_reading(self) -> None:
        """Resume reading its output."""
        self._may_print.set()


Work: TypeAlias = Callable[[ServedChild], Awaitable[None]]


@asynccontextmanager
async def serving(work: Work, input_bytes: int = 0) -> AsyncIterator[ServedChild]:
    """Do some work for as long as the context lasts; leaving cancels it."""
    child = ServedChild(max(input_bytes, 1))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_do, work, child)
        yield child
        tasks.cancel_scope.cancel()


async def _do(work: Work, child: ServedChild) -> None:
    code = -signal.SIGKILL
    try:
        await work(child)
        code = 0
    except Exception:
        # One client's work must not end the others'.
        logger.exception("some work of the exec server broke")
        code = FAILED
    finally:
        child.finish(code)


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
    """TCP connection in the shape of a process: received bytes are its stdout."""

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
        """Queue bytes to send without waiting."""
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
