"""A process of an exec server as its connection sees it, and a command in another environment.

A process has the shape of a local one: what it prints can be read from stream readers, what it is
to read is queued. Output that nobody reads is not credited, and then not sent. A file that was
opened there is one too. A command has the shape of one of this machine.
Source: docs/environments.md, "The exec protocol", "Commands in an environment".
"""

import asyncio
import logging
import signal
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Literal

import anyio
import anyio.abc

from app_server.host.commands.local_commands import InputClosed
from app_server.host.commands.output import OnOutput
from app_server.host.exec.protocol import CHUNK_BYTES, CREDIT_BYTES, WINDOW_BYTES, ProtocolBroken
from protocol.exec.processes import ProcessExitedParams

logger = logging.getLogger(__name__)

QUEUED_BYTES = 64 * 1024
"""Input that may wait for the window before `drain` waits for it to shrink."""


class _Inlet(asyncio.ReadTransport):
    """Fill a stream reader, and return credit unless the reader is full."""

    def __init__(self, limit: int, credit: Callable[[int], None]) -> None:
        super().__init__()
        self.reader = asyncio.StreamReader(limit=limit)
        self.reader.set_transport(self)
        self._credit = credit
        self._taken = 0
        self._full = False

    def feed(self, data: bytes) -> None:
        self._taken += len(data)
        if self._taken > WINDOW_BYTES:
            raise ProtocolBroken("more output than was credited")
        self.reader.feed_data(data)
        self._credit_when_due()

    def pause_reading(self) -> None:
        self._full = True

    def resume_reading(self) -> None:
        self._full = False
        self._credit_when_due()

    def _credit_when_due(self) -> None:
        if not self._full and self._taken >= CREDIT_BYTES:
            taken, self._taken = self._taken, 0
            self._credit(taken)


class RemoteProcess:
    """One process; the connection feeds it and takes its input away."""

    def __init__(
        self,
        process_id: int,
        read_limit_bytes: int,
        credit: Callable[[int, Literal["stdout", "stderr"], int], None],
        has_input: Callable[["RemoteProcess"], None],
    ) -> None:
        """`credit` and `has_input` notify the connection of frames to send."""
        self.id = process_id
        self.pid = None
        """It is none of this machine."""
        self._inlets = {
            "stdout": _Inlet(read_limit_bytes, lambda n: credit(process_id, "stdout", n)),
            "stderr": _Inlet(read_limit_bytes, lambda n: credit(process_id, "stderr", n)),
        }
        self.stdout = self._inlets["stdout"].reader
        self.stderr = self._inlets["stderr"].reader
        self.returncode: int | None = None
        """Exit status, or the negative number of a signal; None while it is not known."""
        self.size: int | None = None
        """Of a file, in bytes."""
        self.unsent_bytes = 0
        self.ended = anyio.Event()
        """Set when the process has ended, or is out of reach."""
        self._has_input = has_input
        self._queue: deque[memoryview] = deque()
        self._window = WINDOW_BYTES
        self._shrunk = anyio.Event()

    def write(self, data: bytes, /) -> None:
        """Queue input without waiting; input after the end is dropped."""
        if data and not self.ended.is_set():
            self._queue.append(memoryview(data))
            self.unsent_bytes += len(data)
            self._has_input(self)

    async def drain(self) -> None:
        """Wait until most of the input has been sent.

        Raises:
            ConnectionResetError: the process has ended, or is out of reach.
        """
        while self.unsent_bytes > QUEUED_BYTES and not self.ended.is_set():
            await self._shrunk.wait()
        if self.ended.is_set():
            raise ConnectionResetError("the process has ended")

    # What the connection calls.

    def take_input(self) -> memoryview | None:
        """Return the next piece that may be sent, if there is one."""
        if not self._queue or not self._window:
            return None
        whole = self._queue.popleft()
        size = min(len(whole), CHUNK_BYTES, self._window)
        if size < len(whole):
            self._queue.appendleft(whole[size:])
        self._window -= size
        self.unsent_bytes -= size
        self._wake_writers()
        return whole[:size]

    def grant(self, count: int) -> None:
        """Take credit for more input."""
        self._window += count
        if self._window > WINDOW_BYTES:
            raise ProtocolBroken("credit for more than was sent")
        self._has_input(self)

    def feed(self, stream: Literal["stdout", "stderr"], data: bytes) -> None:
        """Take output; none means that the stream has ended."""
        if self.ended.is_set():
            return
        if data:
            self._inlets[stream].feed(data)
        else:
            self._inlets[stream].reader.feed_eof()

    def exited(self, params: ProcessExitedParams) -> None:
        """Take the end of the process."""
        signal = params.signal
        self.returncode = params.exit_code if signal is None else -signal
        self.lost()

    def lost(self) -> None:
        """Set `ended`, drop queued input, and feed EOF to the output streams."""
        if self.ended.is_set():
            return
        self.ended.set()
        self._queue.clear()
        self.unsent_bytes = 0
        self._wake_writers()
        for inlet in self._inlets.values():
            inlet.reader.feed_eof()

    def _wake_writers(self) -> None:
        self._shrunk.set()
        self._shrunk = anyio.Event()


async def read_beginning(
    opening: AbstractAsyncContextManager[RemoteProcess], limit_bytes: int
) -> tuple[bytes, int]:
    """Return at most so many bytes of a file, and its size; `opening` is of Environments.open_file.

    Raises:
        ConnectionError: the environment is out of reach, or the file was not read to there.
        OSError: it is not there, is something else, or may not be read.
    """
    content = bytearray()
    async with opening as file:
        while len(content) < limit_bytes:
            if not (piece := await file.stdout.read(limit_bytes - len(content))):
                await file.ended.wait()
                break
            content += piece
    if len(content) < limit_bytes and file.returncode != 0:
        raise ConnectionError("it was not read to its end")
    return bytes(content), len(content) if file.size is None else file.size


class RemoteCommand:
    """A command that an exec server runs; made by RemoteCommand.start alone."""

    def __init__(self, *, takes_input: bool) -> None:
        self.pid = 0
        """Not known here."""
        self.returncode: int | None = None
        """As of a process of this machine; of one that was lost that of SIGKILL."""
        self.finished = asyncio.Event()
        """It has ended, or is out of reach; all of its output that came was handed over."""
        self._takes_input = takes_input
        self._process: RemoteProcess | None = None
        self._scope = anyio.CancelScope()

    @classmethod
    async def start(
        cls,
        running: AbstractAsyncContextManager[RemoteProcess],
        on_output: OnOutput,
        tasks: anyio.abc.TaskGroup,
        *,
        takes_input: bool,
    ) -> "RemoteCommand":
        """Start a command that `tasks` own from now on.

        Raises:
            OSError: it cannot be started there, not be confined, or the environment is away.
        """
        command = cls(takes_input=takes_input)
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        tasks.start_soon(command._run, running, on_output, started)
        try:
            await started
        except asyncio.CancelledError:
            command._scope.cancel()
            raise
        return command

    @property
    def takes_input(self) -> bool:
        """Whether something can be written to it."""
        return self._takes_input and not self.finished.is_set()

    async def write(self, data: bytes) -> None:
        """Write to its input; waits while it does not read.

        Raises:
            InputClosed: nothing reads it.
        """
        if not self.takes_input or self._process is None:
            raise InputClosed(0, "stdin is closed")
        self._process.write(data)
        try:
            await self._process.drain()
        except ConnectionResetError as exc:
            raise InputClosed(0, "stdin is closed") from exc

    async def stop(self) -> None:
        """End it, and wait for that; returns within 5 s."""
        self._scope.cancel()
        with anyio.CancelScope(shield=True):
            await self.finished.wait()

    async def _run(
        self,
        running: AbstractAsyncContextManager[RemoteProcess],
        on_output: OnOutput,
        started: "asyncio.Future[None]",
    ) -> None:
        try:
            with self._scope:
                async with running as process:
                    self._process = process
                    if not started.done():
                        started.set_result(None)
                    while data := await process.stdout.read(CHUNK_BYTES):
                        on_output("stdout", data)
                    await process.ended.wait()
        except OSError as exc:
            if not started.done():
                started.set_exception(exc)
        except Exception:
            # One command must not take the others, and the server, along.
            logger.exception("a command in another environment broke")
            if not started.done():
                started.set_exception(OSError("it could not be started"))
        finally:
            known = None if self._process is None else self._process.returncode
            self.returncode = -signal.SIGKILL if known is None else known
            started.cancel()
            self.finished.set()
