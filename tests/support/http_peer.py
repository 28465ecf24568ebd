"""HTTP/1.1 as peers of tests speak it: a request, whatever a test wants for an answer, the next."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import TypeAlias

NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Trusts nobody. A client without it reads the machine's certificates, which takes it 20 ms."""

BUFFER_BYTES = 1 << 27
"""Read ahead of a request that is answered slowly: models are sent bodies of many MiB."""


@dataclass(frozen=True)
class HttpRequest:
    """One request, with a body of a known length."""

    method: str
    target: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


AnswerRequest: TypeAlias = Callable[
    [HttpRequest, asyncio.StreamReader, asyncio.StreamWriter], Awaitable[bool]
]
"""Writes an answer; False ends the connection. The reader says when the client has left."""


async def read_request(reader: asyncio.StreamReader) -> HttpRequest:
    """Read the next request of a connection.

    Raises:
        IncompleteReadError: the client has left.
    """
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    pairs = (line.partition(": ") for line in lines if line)
    headers = {name.lower(): value for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    method, target, _ = first.split(" ")
    return HttpRequest(method, target, headers, body)


@asynccontextmanager
async def answering(answer: AnswerRequest, port: int = 0) -> AsyncIterator[int]:
    """Listen on a port of 127.0.0.1, 0 for a free one, while the context lasts; gives the port."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # A task of asyncio's that is cancelled makes its own callback complain, so it just ends.
        with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            while await answer(await read_request(reader), reader, writer):
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", port, limit=BUFFER_BYTES)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
