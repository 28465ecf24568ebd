"""An MCP server as a process, here or elsewhere: one JSON-RPC message a line on its pipes.

The SDK's own stdio transport assembles lines without a bound and hides the process; this one bounds
a message and keeps the end of stderr for error texts.
Source: MCP 2025-06-18, "Transports"; docs/mcp.md, "Connections".
"""

from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Self

import anyio

from app_server.mcp.processes import ChildProcess, Processes, ServerOutput
from app_server.mcp_wire.errors import ServerNotReading
from app_server.mcp_wire.messages import (
    MAX_MESSAGE_BYTES,
    JSONRPCRequest,
    NoMessage,
    SessionMessage,
    read_message,
)
from app_server.runtime.launch import Launch
from app_server.runtime.loop_share import LoopShare

PIECE_BYTES = 16 * 1024
"""Of what a server prints, taken apart at once."""

MAX_UNSENT_BYTES = 64 * 1024 * 1024
"""Waiting to be read by a server; a request that comes then fails."""

SEND_S = 30.0
"""For a server to read a message; a request fails above it."""

STDERR_TAIL_BYTES = 4096

LAST_LINES = 5
"""Of stderr, in the last error of a server that ended, or did not start."""

LAST_WORDS_S = 0.5
"""For the exit status and the end of stderr, once stdout has ended."""


class ServerProcess:
    """A running server and its pipes; both ends of a transport."""

    has_session = True
    """Whether the server may remember what it was sent before."""

    def __init__(self, process: ChildProcess) -> None:
        self._process = process
        self._stdout = process.stdout
        self._share = LoopShare()
        self._lines: deque[bytes] = deque()
        self._begun = bytearray()
        """The line that has not ended yet."""
        self._stderr_tail = b""
        self._output = ServerOutput()
        self._stderr_ended = anyio.Event()

    @property
    def is_out_of_reach(self) -> bool:
        """Whether the exit status is unknown, as the environment of the process is out of reach."""
        return self._process.ended.is_set() and self._process.returncode is None

    @property
    def pid(self) -> int | None:
        """Id of the process; None if it is not one of this machine."""
        return self._process.pid

    async def last_words(self, lines: int = 1) -> str:
        """Return how the process ended, as far as it is known, and its last lines on stderr.

        Waits a moment for both, as the end of stdout may be seen before them.
        """
        with anyio.move_on_after(LAST_WORDS_S):
            await self._process.ended.wait()
            await self._stderr_ended.wait()
        code = self._process.returncode
        ending = "" if code is None else f"exit status {code}"
        return ": ".join(part for part in (ending, self.last_lines(lines)) if part)

    def last_lines(self, lines: int = LAST_LINES) -> str:
        """Return the last lines on stderr so far, 300 characters of each."""
        said = self._stderr_tail.decode(errors="replace").strip().splitlines()
        return "\n".join(line[-300:] for line in said[-lines:])

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        """Return the next message, or what was wrong with the next line.

        They end with the server, or with a line above the bound.
        """
        while True:
            if self._lines:
                # There may be millions that have come already. A line that had to be waited for
                # is no more work than its piece was.
                await self._share.wait()
            line = await self._line()
            if not line.strip():
                continue
            try:
                return SessionMessage(await read_message(line))
            except NoMessage as exc:
                return exc

    async def _line(self) -> bytes:
        """Return the next line. Little is read ahead: what stands before an answer delays it."""
        while not self._lines:
            try:
                piece = await self._stdout.read(PIECE_BYTES)
            except OSError as exc:
                raise StopAsyncIteration from exc
            if not piece and not self._begun:
                raise StopAsyncIteration
            first, *others = piece.split(b"\n") if piece else (b"", b"")
            self._begun += first
            if len(self._begun) > MAX_MESSAGE_BYTES:
                raise StopAsyncIteration
            if others:
                self._lines.extend((bytes(self._begun), *others[:-1]))
                self._begun = bytearray(others[-1])
        return self._lines.popleft()

    async def send(self, item: SessionMessage, /) -> None:
        """Send one message; what a slow server has not read yet stays its own message's affair.

        Raises:
            ServerNotReading: the server does not read, and the message is a request.
            anyio.BrokenResourceError: the same for other messages; or the server has ended.
        """
        try:
            await self._send(item.message.model_dump_json(by_alias=True, exclude_unset=True))
        except ServerNotReading as exc:
            if isinstance(item.message, JSONRPCRequest):
                raise
            raise anyio.BrokenResourceError from exc
        except OSError as exc:
            raise anyio.BrokenResourceError from exc

    async def _send(self, line: str) -> None:
        if self._process.unsent_bytes > MAX_UNSENT_BYTES:
            raise ServerNotReading(
                f"more than {MAX_UNSENT_BYTES} bytes wait for the server to read them"
            )
        self._process.write(line.encode() + b"\n")
        if not self._process.unsent_bytes:
            return
        with anyio.move_on_after(SEND_S) as limit:
            await self._process.drain()
        if limit.cancelled_caught:
            raise ServerNotReading("the server does not read its input")

    def write_to(self, output: ServerOutput) -> None:
        """Keep what the process has written to stderr, and what it will write, there."""
        output.add(self._output.text().encode())
        self._output = output

    async def drain_stderr(self) -> None:
        """Read stderr to its end, so that the server never blocks on it; keep the tail."""
        while chunk := await self._process.stderr.read(65536):
            self._stderr_tail = (self._stderr_tail + chunk)[-STDERR_TAIL_BYTES:]
            self._output.add(chunk)
        self._stderr_ended.set()


@asynccontextmanager
async def run_server(
    processes: Processes, environment_id: str, launch: Launch
) -> AsyncIterator[ServerProcess]:
    """Run a server for as long as the context lasts; leaving stops it, within a bound.

    Raises:
        OSError: the command cannot be run; see Processes.run.
    """
    async with processes.run(environment_id, launch) as child:
        process = ServerProcess(child)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(process.drain_stderr)
            try:
                yield process
            finally:
                tasks.cancel_scope.cancel()
