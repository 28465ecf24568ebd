"""One message a line on this process's stdin and stdout.

Source: docs/wire.md, "Framing".
"""

import asyncio
import os
import stat
import sys
import threading
from contextlib import suppress
from typing import IO, BinaryIO, Protocol

import anyio

MAX_LINE_BYTES = 64 * 1024 * 1024
"""Bytes of one incoming message without its line end; a longer one ends the conversation."""
PIECE_BYTES = 64 * 1024
"""Bytes that are read at once from a file."""


class _Output(Protocol):
    async def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...


class StdioStream:
    """A MessageStream over two pipes, or files."""

    def __init__(
        self,
        reader: asyncio.StreamReader,
        source: asyncio.ReadTransport,
        output: _Output,
        max_line_bytes: int,
    ) -> None:
        """Read what `source` brings; both it and `output` are owned from now on.

        `max_line_bytes` is the limit of `reader`.
        """
        self._max_line_bytes = max_line_bytes
        self._reader = reader
        self._source = source
        self._output = output

    async def receive(self) -> str:
        """Return the next line that is not blank; the last one may lack its line end.

        Bytes that are no UTF-8 are surrogates in it, which no JSON can be read from.
        """
        while True:
            try:
                line = await self._reader.readline()
            except ValueError as exc:
                text = f"a message is longer than {self._max_line_bytes} bytes"
                raise anyio.EndOfStream(text) from exc
            if not line:
                raise anyio.EndOfStream
            if line.strip():
                return line.decode(errors="surrogateescape")

    async def send(self, *texts: str) -> None:
        """Write a line for each. JSON as we render it has no raw line ends."""
        try:
            await self._output.write("".join(f"{text}\n" for text in texts).encode())
        except OSError as exc:
            raise anyio.BrokenResourceError from exc

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        """Close both pipes. What the outgoing one has not taken by now it never gets."""
        self._source.close()
        self._output.close()


class _Pipe:
    """An output that the loop waits for."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def close(self) -> None:
        if not self._writer.is_closing():
            self._writer.transport.abort()


class _File:
    """An output that the loop cannot wait for; a thread writes to it."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    async def write(self, data: bytes) -> None:
        await asyncio.to_thread(self._write, data)

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._file.flush()

    def close(self) -> None:
        """Leave the file open: all of it is written, and it is the process's own."""


async def open_stdio(max_line_bytes: int = MAX_LINE_BYTES) -> StdioStream:
    """Take over stdin and stdout as a MessageStream of lines of at most `max_line_bytes`.

    Raises:
        OSError: one of them is closed, or cannot be used.
    """
    for name in ("stdin", "stdout"):
        # That is how Python has what was closed before its start.
        if getattr(sys, name) is None:
            raise OSError(f"{name} is closed, and stdio:// needs it")
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=max_line_bytes)
    source = sys.stdin.buffer if _is_waited_for(sys.stdin.buffer) else _as_pipe(sys.stdin.buffer)
    incoming, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), source)
    if not _is_waited_for(sys.stdout.buffer):
        return StdioStream(reader, incoming, _File(sys.stdout.buffer), max_line_bytes)
    transport, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, sys.stdout.buffer
    )
    # So that `drain` waits until nothing is left here: it would be lost with the process.
    transport.set_write_buffer_limits(0)
    return StdioStream(
        reader,
        incoming,
        _Pipe(asyncio.StreamWriter(transport, protocol, None, loop)),
        max_line_bytes,
    )


def _is_waited_for(file: BinaryIO) -> bool:
    """Whether the loop can wait for a file: for pipes, sockets and terminals it can."""
    mode = os.fstat(file.fileno()).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(file.fileno())


def _as_pipe(file: BinaryIO) -> IO[bytes]:
    """Give what a file has, such as a list of requests or /dev/null, through a pipe."""
    source, sink = os.pipe()

    def copy() -> None:
        # The reader may be gone before the end.
        with suppress(BrokenPipeError), os.fdopen(sink, "wb") as pipe:
            while piece := os.read(file.fileno(), PIECE_BYTES):
                pipe.write(piece)

    threading.Thread(target=copy, name="stdin", daemon=True).start()
    return os.fdopen(source, "rb")
