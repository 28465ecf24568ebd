"""WebSocket frames as raw bytes, and a server's end to send them to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from app_server.transport.address import TcpAddress
from app_server.transport.websocket import WebSocketLimits, WebSocketStream, listen_tcp

REQUEST = (
    b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10


def frame(opcode: int, payload: bytes = b"", mask: bytes = bytes(4), *, fin: bool = True) -> bytes:
    """Write a frame as a client does."""
    length = len(payload)
    first = (0x80 if fin else 0) | opcode
    if length < 126:
        head = bytes([first, 0x80 | length])
    elif length < 2**16:
        head = bytes([first, 0x80 | 126]) + length.to_bytes(2, "big")
    else:
        head = bytes([first, 0x80 | 127]) + length.to_bytes(8, "big")
    return head + mask + bytes(byte ^ mask[n % 4] for n, byte in enumerate(payload))


@asynccontextmanager
async def accepted(
    limits: WebSocketLimits | None = None,
) -> AsyncIterator[tuple[WebSocketStream, asyncio.StreamReader, asyncio.StreamWriter]]:
    """Serve one client; give the server's end, and the socket of the client."""
    streams: list[WebSocketStream] = []
    arrived, done = anyio.Event(), anyio.Event()

    async def converse(stream: object) -> None:
        assert isinstance(stream, WebSocketStream)
        streams.append(stream)
        arrived.set()
        await done.wait()

    address = TcpAddress("127.0.0.1", 0)
    async with listen_tcp(address, converse, limits or WebSocketLimits()) as listener:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", int(listener.url.rsplit(":", 1)[1])
        )
        writer.write(REQUEST)
        try:
            await reader.readuntil(b"\r\n\r\n")
            await arrived.wait()
            yield streams[0], reader, writer
        finally:
            done.set()
            writer.transport.abort()
