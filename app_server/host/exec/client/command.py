"""A command in another environment, in the shape of one of this machine.

Source: docs/environments.md, "Commands in an environment".
"""

import asyncio
import logging
import signal
from contextlib import AbstractAsyncContextManager

import anyio
import anyio.abc

from app_server.host.commands.local_command import InputClosed
from app_server.host.commands.reading import OnOutput
from app_server.host.exec.client.process import RemoteProcess
from app_server.host.exec.protocol import CHUNK_BYTES

logger = logging.getLogger(__name__)


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
