"""Commands on this machine, each within what confines it; none outlives this process.

Source: docs/tools.md, "Commands", "Sandbox".
"""

import asyncio
import fcntl
import os
import socket
import sys
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from app_server.host.commands.local_command import CommandLaunch, LocalCommand, set_size
from app_server.host.commands.reading import OnOutput
from app_server.host.commands.spawning import Spawner
from app_server.host.proxy.gate import Gate, UnaskedGate
from app_server.host.sandbox.linux.placeholders import PlaceholderRecords
from app_server.host.sandbox.linux.process_limits import ServerGroup
from app_server.host.sandbox.wrapped_command import SandboxUnavailable, WrappedCommand
from app_server.permissions.confinement.confinement import Confinement
from app_server.permissions.confinement.pinned_places import PlaceChanged
from app_server.permissions.confinement.resolving import pin_places, resolved
from app_server.permissions.rules.book import RuleBook
from app_server.runtime.loader import Lazy, LoadFailed, load

if TYPE_CHECKING:
    from app_server.host.proxy.server import ProxyServer
    from app_server.host.sandbox.machine_sandbox import MachineSandbox


T = TypeVar("T")

RECORDS = "locks/placeholders"
"""In a server's home: where placeholders are."""

START_S = 30.0
"""For a command to be started; a disk that sleeps may take long."""

PIPE_BYTES = (1024 * 1024, 256 * 1024)
"""Capacities of a pipe in bytes, the first that the system allows: fewer and larger reads."""


class LocalCommands:
    """All commands of one server; nothing of them outlives it."""

    def __init__(self, rules: RuleBook | None = None, home: Path | None = None) -> None:
        """Apply `rules` to the connections of commands that have no gate.

        In `home` is written down what a sandbox leaves behind if this process is killed.
        """
        self._rules = rules or RuleBook()
        self._group = ServerGroup()
        self.spawner = Spawner(self._group)
        self._running: set[LocalCommand] = set()
        self._records = None if home is None else PlaceholderRecords(home / RECORDS)
        self._sandbox = Lazy("the sandbox of commands", self._make_sandbox)
        self._proxy = Lazy("the proxy of commands", _load_proxy)
        self._cleaning_up: set[asyncio.Task[None]] = set()

    async def load_sandbox(self) -> None:
        """Import what confines commands, so that the first one need not wait for it.

        Raises:
            LoadFailed: it cannot be imported now.
        """
        await self._sandbox.get()
        await self.remove_left()

    async def remove_left(self) -> None:
        """Remove what killed servers left behind in workspaces."""
        if self._records is not None:
            await anyio.to_thread.run_sync(self._records.remove_left)

    async def pin_places(self, confinement: Confinement, *, anew: bool = True) -> None:
        """Set the places of a policy, as its user has named them; see PinnedPlaces.pin.

        Removes what killed servers left behind in them.
        """
        await anyio.to_thread.run_sync(partial(pin_places, confinement, anew=anew))
        await self.remove_left()

    async def start(
        self,
        launch: CommandLaunch,
        confinement: Confinement,
        on_output: OnOutput,
        gate: Gate | None = None,
    ) -> LocalCommand:
        """Start a command; it runs until it ends or is stopped, not only while it is awaited.

        `confinement` is as settings have it: links are followed here. `on_output` never waits.
        `gate` decides about its connections where its network is the proxy; without one the
        settings and rules alone do.

        Raises:
            SandboxUnavailable: it cannot be confined on this machine, and was not started.
            OSError: it cannot be started; `filename` names the folder or program.
        """
        if not confinement.is_confined:
            return await self._start(launch, on_output)
        proxy: type[ProxyServer] | None = None
        if confinement.proxy is not None:
            proxy = await _loaded(self._proxy, "the proxy of the command")
            gate = gate or UnaskedGate(confinement.proxy, self._rules)
        sandbox = await _loaded(self._sandbox, "the sandbox")
        # What a sandbox puts into a workspace is removed by it if this process is killed.
        await self.spawner.prepare()
        wrapped = await anyio.to_thread.run_sync(self._wrap, sandbox, launch, confinement)
        command: LocalCommand | None = None
        try:
            confined = replace(
                launch,
                argv=wrapped.argv,
                takes_terminal=wrapped.takes_terminal,
                inherited_fds=(*launch.inherited_fds, *wrapped.pass_fds),
                placeholders=wrapped.placeholders,
                is_wrapped=True,
            )
            command = await self._start(confined, on_output)
        finally:
            wrapped.started()
            serving = None
            if command is not None and proxy is not None:
                assert gate is not None
                assert wrapped.network is not None
                serving = proxy(gate, wrapped.network)
            self._clean_up(wrapped, command, serving)
        return command

    async def aclose(self) -> None:
        """End all commands and let go of what they had, and then end what starts them."""
        async with anyio.create_task_group() as tasks:
            for command in list(self._running):
                tasks.start_soon(command.stop)
        await self.spawner.aclose()
        await anyio.to_thread.run_sync(self._group.remove)
        while self._cleaning_up:
            await asyncio.wait(self._cleaning_up)

    async def _make_sandbox(self) -> "MachineSandbox":
        made = await load(_machine_sandbox)
        return made(records=self._records)

    def _wrap(
        self, sandbox: "MachineSandbox", launch: CommandLaunch, confinement: Confinement
    ) -> WrappedCommand:
        if self._records is not None:
            self._records.remove_left()
        try:
            real = resolved(confinement)
        except PlaceChanged as exc:
            raise SandboxUnavailable(str(exc)) from None
        cwd = os.path.realpath(launch.cwd)
        return sandbox.wrap(launch.argv, cwd, real, tty=launch.terminal is not None)

    async def _start(self, launch: CommandLaunch, on_output: OnOutput) -> LocalCommand:
        """Have the spawner start a command as it is, and wait until it was started."""
        ours, theirs = socket.socketpair()
        command = LocalCommand(ours, self._running)
        try:
            with ExitStack() as given:
                ends = _attach(command, launch, on_output, given)
                if launch.starts_paused:
                    command.pause_reading()
                given.callback(theirs.close)
                order = {
                    "argv": list(launch.argv),
                    "env": dict(launch.env),
                    "cwd": launch.cwd,
                    "fds": [*range(len(ends.fds)), *launch.inherited_fds],
                    "terminal": ends.terminal,
                    "wrapped": launch.is_wrapped,
                    "placeholders": {str(fd): name for fd, name in launch.placeholders},
                }
                fds = [theirs.fileno(), *ends.fds, *launch.inherited_fds]
                await self.spawner.order(order, fds)
                # Only then the end of a supervisor that is killed at once is seen here.
                theirs.close()
                with anyio.fail_after(START_S):
                    await command.started
        except BaseException as exc:
            # The end of the control socket ends what was begun.
            command.abandon()
            if isinstance(exc, TimeoutError):
                raise OSError(0, f"it was not started within {START_S:.0f} s") from exc
            raise
        return command

    def _clean_up(
        self, wrapped: WrappedCommand, command: LocalCommand | None, serving: "ProxyServer | None"
    ) -> None:
        task = asyncio.get_running_loop().create_task(_close(wrapped, command, serving))
        self._cleaning_up.add(task)
        task.add_done_callback(self._cleaning_up.discard)


async def _loaded(lazy: Lazy[T], what: str) -> T:
    try:
        return await lazy.get()
    except LoadFailed as exc:
        raise SandboxUnavailable(f"{what} cannot be loaded: {exc}") from exc


async def _load_proxy() -> "type[ProxyServer]":
    return await load(_proxy_server)


def _proxy_server() -> "type[ProxyServer]":
    from app_server.host.proxy.server import ProxyServer

    return ProxyServer


def _machine_sandbox() -> "type[MachineSandbox]":
    from app_server.host.sandbox.machine_sandbox import MachineSandbox

    return MachineSandbox


async def _close(
    wrapped: WrappedCommand, command: LocalCommand | None, serving: "ProxyServer | None"
) -> None:
    if command is not None:
        await command.gone.wait()
    if serving is not None:
        await serving.aclose()
    await anyio.to_thread.run_sync(wrapped.close)


@dataclass(frozen=True, slots=True)
class _Ends:
    """The command's ends of its pipes or its terminal."""

    fds: list[int]
    """Its stdin, stdout and stderr; empty with a controlling terminal."""
    terminal: str | None = None
    """The path of its controlling terminal."""


def _attach(
    command: LocalCommand, launch: CommandLaunch, on_output: OnOutput, given: ExitStack
) -> _Ends:
    """Make pipes or a terminal; what the command gets of them is closed here with `given`."""
    if launch.terminal is not None:
        ours, slave = os.openpty()
        # As long as nobody has the other side open, reading ours would fail.
        given.callback(os.close, slave)
        set_size(ours, launch.terminal)
        command.attach_terminal(ours, on_output)
        if launch.takes_terminal:
            return _Ends([slave] * 3)
        return _Ends([], os.ttyname(slave))
    stdin, theirs_in = None, -1
    if launch.has_stdin:
        theirs_in, stdin = os.pipe()
    else:
        theirs_in = os.open(os.devnull, os.O_RDONLY)
    given.callback(os.close, theirs_in)
    stdout, theirs_out = _output_pipe(given)
    stderr, theirs_err = (None, theirs_out) if launch.merges_stderr else _output_pipe(given)
    command.attach_pipes(stdin, stdout, stderr, on_output)
    return _Ends([theirs_in, theirs_out, theirs_err])


def _output_pipe(given: ExitStack) -> tuple[int, int]:
    ours, theirs = os.pipe()
    given.callback(os.close, theirs)
    if sys.platform == "linux":
        # A user's pipes together have a bound; then it stays at what it is.
        for size in PIPE_BYTES:
            with suppress(OSError):
                fcntl.fcntl(theirs, fcntl.F_SETPIPE_SZ, size)
                break
    return ours, theirs
