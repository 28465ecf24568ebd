"""Processes on this machine: pipes, a session and process group each, an end within a bound.

Source: docs/environments.md, "Children".
"""

import asyncio
import logging
import os
import signal
from asyncio.subprocess import SubprocessStreamProtocol
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

from app_server.host.reaper import Reaper
from app_server.runtime.launch import Launch

logger = logging.getLogger(__name__)

TERMINATE_S = 2.0
"""Between SIGTERM and SIGKILL."""

KILL_S = 5.0
"""For the system to end what was killed; a disk that hangs may keep it."""


class _Protocol(SubprocessStreamProtocol):
    """Says when the process has ended, also while others hold on to its pipes."""

    def __init__(self, limit: int, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(limit, loop)
        self.exited = anyio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class LocalProcess:
    """A child of this process and its pipes."""

    def __init__(self, transport: asyncio.SubprocessTransport, protocol: _Protocol) -> None:
        assert protocol.stdin is not None
        assert protocol.stdout is not None
        assert protocol.stderr is not None
        self._transport = transport
        self.terminate_s = TERMINATE_S
        """Seconds between SIGTERM and SIGKILL."""
        self.pid = transport.get_pid()
        """The process leads a group of this id."""
        self.stdin = protocol.stdin
        self.stdout = protocol.stdout
        self.stderr = protocol.stderr
        self.ended = protocol.exited
        """Set when the process has ended; others of its group may live on."""
        self.group_is_gone = False
        """Nothing of the group is left: its id may be given to others."""
        self.write = self.stdin.write
        self.drain = self.stdin.drain

    @property
    def unsent_bytes(self) -> int:
        """Bytes of input that are not in the pipe yet."""
        return self.stdin.transport.get_write_buffer_size()

    @property
    def returncode(self) -> int | None:
        """Exit status, or the negative number of a signal; None while it runs."""
        return self._transport.get_returncode()

    async def stop(self) -> None:
        """End the process group: SIGTERM now, SIGKILL a little later, and wait for its end."""
        self.stdin.close()
        self._signal(signal.SIGTERM)
        with anyio.move_on_after(self.terminate_s):
            await self.ended.wait()
        self._signal(signal.SIGKILL)
        with anyio.move_on_after(KILL_S) as limit:
            await self.ended.wait()
        if limit.cancelled_caught:
            logger.warning("process %d does not end, although it was killed", self.pid)
        # Processes that left the group may hold the other ends.
        self._transport.close()

    async def watch(self) -> None:
        """Wait for the end of the process, and find out whether others of its group live on."""
        await self.ended.wait()
        self._signal(0)

    def _signal(self, number: int) -> None:
        if self.group_is_gone:
            return
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            self.group_is_gone = self.ended.is_set()


class LocalProcesses:
    """Starts processes here; none outlives this one."""

    def __init__(self) -> None:
        self.reaper = Reaper()

    @asynccontextmanager
    async def run(self, launch: Launch) -> AsyncIterator[LocalProcess]:
        """Run a process for as long as the context lasts; leaving ends its group within a bound.

        Raises:
            OSError: it cannot be started.
        """
        await self.reaper.ready()
        # Cancelled in the middle asyncio would end the process, and nothing else of its group.
        with anyio.CancelScope(shield=True):
            process = await _start(launch)
        self.reaper.add(process.pid)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._forget_when_gone, process)
                try:
                    yield process
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            with anyio.CancelScope(shield=True):
                await process.stop()
            self.reaper.discard(process.pid)

    async def aclose(self) -> None:
        """Close the watchdog, once all processes have been stopped."""
        await self.reaper.aclose()

    async def _forget_when_gone(self, process: LocalProcess) -> None:
        await process.watch()
        if process.group_is_gone:
            self.reaper.discard(process.pid)


async def _start(launch: Launch) -> LocalProcess:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.subprocess_exec(
        lambda: _Protocol(launch.read_limit_bytes, loop),
        launch.command,
        *launch.args,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=launch.environment(os.environ),
        cwd=launch.cwd,
        start_new_session=True,
    )
    return LocalProcess(transport, protocol)
