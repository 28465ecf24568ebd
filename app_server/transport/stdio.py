"""One message a line on this process's stdin and stdout.

Source: docs/wire.md, "Framing".
"""

import asyncio
import sys

import anyio

MAX_LINE_BYTES = 64 * 1024 * 1024
"""Bytes of one incoming message without its line end; a longer one ends the conversation."""


class StdioStream:
    """A MessageStream over two pipes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> str:
        """Return the next line that is not blank; the last one may lack its line end.

        Bytes that are no UTF-8 are surrogates in it, which no JSON can be read from.
        """
        while True:
            try:
                line = await self._reader.readline()
            except ValueError as exc:
                raise anyio.EndOfStream(f"a message is longer than {MAX_LINE_BYTES} bytes") from exc
            if not line:
                raise anyio.EndOfStream
            if line.strip():
                return line.decode(errors="surrogateescape")

    async def send(self, *texts: str) -> None:
        """Write a line for each. JSON as we render it has no raw line ends."""
        try:
            self._writer.write("".join(f"{text}\n" for text in texts).encode())
            await self._writer.drain()
        except OSError as exc:
            raise anyio.BrokenResourceError from exc

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        """Close the outgoing pipe. What it has not taken by now it never gets."""
        if not self._writer.is_closing():
            self._writer.transport.abort()


async def open_stdio() -> StdioStream:
    """Take over stdin and stdout as a MessageStream."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=MAX_LINE_BYTES)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, sys.stdout.buffer
    )
    # So that `drain` waits until nothing is left here: it would be lost with the process.
    transport.set_write_buffer_limits(0)
    return StdioStream(reader, asyncio.StreamWriter(transport, protocol, None, loop))
