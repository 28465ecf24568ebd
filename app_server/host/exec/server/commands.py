"""Commands of an exec server: the shell, variables and sandbox of its machine.

Work is confined by its client's policy, widened by the user's grants. Work of the server itself,
and its connections, have the shape of processes without stderr.
Source: docs/environments.md, "Commands in an environment"; docs/tools.md, "Commands", "Sandbox".
"""

import asyncio
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import anyio
import anyio.to_thread

from app_server.host.commands.local_commands import (
    CommandLaunch,
    InputClosed,
    LocalCommand,
    LocalCommands,
    TerminalSize,
)
from app_server.host.commands.output import Stream
from app_server.host.commands.shell import UnknownShell, find_shell, shell_command
from app_server.host.exec.protocol import CHUNK_BYTES, ProtocolBroken
from app_server.host.sandbox.wrapped_command import SandboxUnavailable
from app_server.permissions.environment import EnvironmentPolicy, command_environment
from app_server.permissions.grants import Grant
from app_server.permissions.sandbox.policy import (
    EffectivePolicy,
    effective_policy_for,
    effective_policy_of_profile,
)
from app_server.permissions.sandbox.roots import MachinePaths
from protocol.exec.processes import CommandStartParams, WorkPolicy

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


def effective_policy_there(
    policy: WorkPolicy, start: str | None, machine_paths: MachinePaths
) -> EffectivePolicy:
    """Confine work that begins in a folder; `machine_paths` are those of this machine.

    Raises:
        OSError: a root is not absolute.
    """
    roots = policy.roots
    if roots is None:
        roots = [] if start is None else [start]
    if not all(root.startswith("/") for root in roots):
        raise OSError("roots must be absolute paths")
    granted = policy.granted
    grant = Grant(tuple(granted.read), tuple(granted.write), granted.network)
    folder = start if policy.folder is None else policy.folder
    if policy.permission_profile is not None:
        confined = effective_policy_of_profile(
            policy.permission_profile, roots, machine_paths, folder
        )
    else:
        confined = effective_policy_for(policy.sandbox_policy, roots, machine_paths, folder)
    return grant.widened(confined)


class CommandChild(asyncio.ReadTransport):
    """Command in the shape of a child process: its output is read from stream readers."""

    def __init__(self) -> None:
        super().__init__()
        self.stdout = asyncio.StreamReader(limit=CHUNK_BYTES)
        self.stdout.set_transport(self)
        self.stderr = asyncio.StreamReader()
        self.stderr.feed_eof()
        self.ended = anyio.Event()
        self._command: LocalCommand | None = None
        self._queue = b""
        self._writing: asyncio.Task[None] | None = None
        self.stdin = self

    def take(self, stream: Stream, data: bytes) -> None:
        """Take output."""
        self.stdout.feed_data(data)

    async def follow(self, command: LocalCommand) -> None:
        """Read the output, which was paused until now, and wait for the end."""
        self._command = command
        command.resume_reading()
        await command.finished.wait()
        self.stdout.feed_eof()
        self.ended.set()

    @property
    def pid(self) -> int:
        """The id of its process."""
        return 0 if self._command is None else self._command.pid

    @property
    def returncode(self) -> int | None:
        """Exit status, or the negative number of a signal; None while it runs."""
        return None if self._command is None else self._command.returncode

    def write(self, data: bytes) -> None:
        """Queue input; never waits."""
        self._queue += data

    async def drain(self) -> None:
        """Write the queued input.

        Raises:
            InputClosed: it takes none.
        """
        data, self._queue = self._queue, b""
        if self._command is None:
            raise InputClosed(0, "it has not started")
        await self._command.write(data)

    def is_closing(self) -> bool:
        """Whether it takes no input."""
        return self._command is None or not self._command.takes_input

    def close(self) -> None:
        """End its input."""
        if self._command is not None:
            self._command.close_input()

    def pause_reading(self) -> None:
        """Pause reading its output."""
        if self._command is not None:
            self._command.pause_reading()

    def resume_reading(self) -> None:
        """Resume reading its output."""
        if self._command is not None:
            self._command.resume_reading()


@asynccontextmanager
async def run_command(
    machine: LocalCommands, params: CommandStartParams, machine_paths: MachinePaths
) -> AsyncIterator[CommandChild]:
    """Run a command for as long as the context lasts; leaving ends all of it.

    Raises:
        OSError: it cannot be started, or not be confined.
    """
    try:
        shell = await anyio.to_thread.run_sync(find_shell, params.shell)
        child = CommandChild()
        cwd = _folder(params.cwd)
        launch = CommandLaunch(
            shell_command(shell, params.line, login=params.login),
            _variables(params),
            cwd,
            None if (size := params.terminal) is None else TerminalSize(size.rows, size.cols),
            # A stream reader that has too much asks for a pause once: before `follow` it gets none.
            starts_paused=True,
        )
        sandbox_policy = effective_policy_there(params, cwd, machine_paths)
        command = await machine.start(launch, sandbox_policy, child.take)
    except (SandboxUnavailable, UnknownShell) as exc:
        raise OSError(str(exc)) from exc
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(child.follow, command)
            await anyio.lowlevel.checkpoint()
            yield child
            tasks.cancel_scope.cancel()
    finally:
        await command.stop()


def _folder(wanted: str | None) -> str:
    return os.path.normpath(Path.cwd() / (wanted or ""))


def _variables(params: CommandStartParams) -> dict[str, str]:
    given = params.variables
    policy = EnvironmentPolicy(
        inherit=given.inherit,
        ignore_default_excludes=given.ignore_default_excludes,
        exclude=tuple(given.exclude),
        set=given.set,
        include_only=tuple(given.include_only),
    )
    return command_environment(policy, os.environ, given.credentials, given.given)
