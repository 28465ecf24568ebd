"""An MCP server as a child process: one JSON-RPC message a line on its pipes.

The SDK's own stdio transport assembles lines without a bound and hides the process; this one bounds
a message, keeps the end of stderr for error texts, and stops the whole process group at once.
Source: MCP 2025-06-18, "Transports"; docs/mcp.md, "Connections".
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest, jsonrpc_message_adapter
from pydantic import ValidationError

from app_server.mcp.errors import ServerDeaf

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Bytes of one line from a server; a longer one ends the connection."""

MAX_UNSENT_BYTES = 64 * 1024 * 1024
"""Waiting to be read by a server; a request that comes then fails."""

SEND_S = 30.0
"""For a server to read a message; a request fails above it."""

STDERR_TAIL_BYTES = 4096
TERMINATE_S = 2.0
"""Between SIGTERM and SIGKILL."""


class ServerProcess:
    """A running server and its pipes; both ends of a transport."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._stderr = process.stderr
        self._stderr_tail = b""

    @property
    def pid(self) -> int:
        """The id of the process, which leads a process group of its own."""
        return self._process.pid

    @property
    def last_words(self) -> str:
        """How the process ended, as far as it is known, and its last line on stderr."""
        code = self._process.returncode
        ending = "" if code is None else f"exit status {code}"
        lines = self._stderr_tail.decode(errors="replace").strip().splitlines()
        return ": ".join(part for part in (ending, *(line[-300:] for line in lines[-1:])) if part)

    async def receive(self) -> SessionMessage | Exception:
        """Return the next message, or what was wrong with the next line.

        Raises:
            anyio.EndOfStream: the server has ended, or sent a line above the bound.
        """
        while True:
            try:
                line = await self._stdout.readline()
            except (ValueError, OSError) as exc:
                raise anyio.EndOfStream from exc
            if not line:
                raise anyio.EndOfStream
            if not line.strip():
                continue
            try:
                return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
            except ValidationError as exc:
                return exc

    async def send(self, item: SessionMessage, /) -> None:
        """Send one message; what a slow server has not read yet stays its own message's affair.

        Raises:
            ServerDeaf: the server does not read, and the message is a request.
            anyio.BrokenResourceError: the same for other messages; or the server has ended.
        """
        try:
            await self._send(item.message.model_dump_json(by_alias=True, exclude_unset=True))
        except ServerDeaf as exc:
            if isinstance(item.message, JSONRPCRequest):
                raise
            raise anyio.BrokenResourceError from exc
        except OSError as exc:
            raise anyio.BrokenResourceError from exc

    async def _send(self, line: str) -> None:
        if self._stdin.transport.get_write_buffer_size() > MAX_UNSENT_BYTES:
            raise ServerDeaf(f"more than {MAX_UNSENT_BYTES} bytes wait for the server to read them")
        self._stdin.write(line.encode() + b"\n")
        with anyio.move_on_after(SEND_S) as limit:
            await self._stdin.drain()
        if limit.cancelled_caught:
            raise ServerDeaf("the server does not read its input")

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def aclose(self) -> None:
        """Do nothing: the process is stopped by whoever started it."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        pass

    async def drain_stderr(self) -> None:
        """Read stderr to its end, so that the server never blocks on it; keep the tail."""
        while chunk := await self._stderr.read(65536):
            self._stderr_tail = (self._stderr_tail + chunk)[-STDERR_TAIL_BYTES:]

    async def stop(self) -> None:
        """End the process group: SIGTERM now, SIGKILL a little later, and wait for its end."""
        self._stdin.close()
        self._signal(signal.SIGTERM)
        with anyio.move_on_after(TERMINATE_S):
            await self._process.wait()
        self._signal(signal.SIGKILL)
        await self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


@asynccontextmanager
async def run_server(
    command: str, args: Sequence[str], env: Mapping[str, str], cwd: str
) -> AsyncIterator[ServerProcess]:
    """Run a server for as long as the context lasts; leaving stops it, within a bound.

    Raises:
        OSError: the command cannot be run.
    """
    child = await asyncio.create_subprocess_exec(
        command,
        *args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=env,
        cwd=cwd,
        limit=MAX_MESSAGE_BYTES,
        start_new_session=True,
    )
    process = ServerProcess(child)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(process.drain_stderr)
            try:
                yield process
            finally:
                tasks.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await process.stop()
