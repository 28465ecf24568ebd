"""Commands on this machine, each within what confines it.

Source: docs/tools.md, "Commands", "Sandbox".
"""

import asyncio
import os
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import anyio
import anyio.to_thread

from app_server.host.commands.command import OnOutput, RunningCommand
from app_server.host.commands.commands import Commands
from app_server.host.commands.launch import CommandLaunch
from app_server.host.proxy.gate import Gate, UnaskedGate
from app_server.host.sandbox.errors import SandboxUnavailable
from app_server.host.sandbox.linux.placeholders import PlaceholderRecords
from app_server.host.sandbox.wrapped_command import WrappedCommand
from app_server.permissions.confinement.confinement import Confinement
from app_server.permissions.confinement.held import PlaceChanged
from app_server.permissions.confinement.resolving import hold, resolved
from app_server.permissions.rules.book import RuleBook
from app_server.runtime.loader import Lazy, LoadFailed, load

if TYPE_CHECKING:
    from app_server.host.proxy.server import ProxyServer
    from app_server.host.sandbox.launcher import SandboxLauncher

T = TypeVar("T")

RECORDS = "locks/placeholders"
"""In a server's home: where placeholders are."""


class MachineCommands:
    """All commands of one server; nothing of them outlives it."""

    def __init__(self, rules: RuleBook | None = None, home: Path | None = None) -> None:
        """Apply `rules` to the connections of commands that have no gate.

        In `home` is written down what a sandbox leaves behind if this process is killed.
        """
        self._rules = rules or RuleBook()
        self._commands = Commands()
        self._records = None if home is None else PlaceholderRecords(home / RECORDS)
        self._sandbox = Lazy("the sandbox of commands", self._make_sandbox)
        self._proxy = Lazy("the proxy of commands", lambda: load(_proxy_server))
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

    async def hold(self, confinement: Confinement, *, anew: bool = True) -> None:
        """Set the places of a policy, as its user has named them; see HeldPlaces.hold.

        Removes what killed servers left behind in them.
        """
        await anyio.to_thread.run_sync(_hold, confinement, anew, self._records)

    async def start(
        self,
        launch: CommandLaunch,
        confinement: Confinement,
        on_output: OnOutput,
        gate: Gate | None = None,
    ) -> RunningCommand:
        """Start a command; it runs until it ends or is stopped, not only while it is awaited.

        `confinement` is as settings have it: links are followed here. `on_output` never waits.
        `gate` decides about its connections where its network is the proxy; without one the
        settings and rules alone do.

        Raises:
            SandboxUnavailable: it cannot be confined on this machine, and was not started.
            OSError: it cannot be started; `filename` names the folder or program.
        """
        if not confinement.is_confined:
            return await self._commands.start(launch, on_output)
        proxied = None
        if confinement.proxy is not None:
            made = await _loaded(self._proxy, "the proxy of the command")
            proxied = partial(made, gate or UnaskedGate(confinement.proxy, self._rules))
        sandbox = await _loaded(self._sandbox, "the sandbox")
        # What a sandbox puts into a workspace is removed by it if this process is killed.
        await self._commands.prepare()
        wrapped = await anyio.to_thread.run_sync(_wrap, sandbox, launch, confinement, self._records)
        command: RunningCommand | None = None
        try:
            confined = replace(
                launch,
                argv=wrapped.argv,
                takes_terminal=wrapped.takes_terminal,
                inherited_fds=(*launch.inherited_fds, *wrapped.pass_fds),
                placeholders=wrapped.placeholders,
                is_wrapped=True,
            )
            command = await self._commands.start(confined, on_output)
        finally:
            wrapped.started()
            serving = None
            if command is not None and proxied is not None:
                assert wrapped.network is not None
                serving = proxied(wrapped.network)
            self._clean_up(wrapped, command, serving)
        return command

    async def aclose(self) -> None:
        """End all commands and let go of what they had."""
        await self._commands.aclose()
        while self._cleaning_up:
            await asyncio.wait(self._cleaning_up)

    async def _make_sandbox(self) -> "SandboxLauncher":
        made = await load(_launcher)
        return made(records=self._records)

    def _clean_up(
        self, wrapped: WrappedCommand, command: RunningCommand | None, serving: "ProxyServer | None"
    ) -> None:
        task = asyncio.get_running_loop().create_task(_close(wrapped, command, serving))
        self._cleaning_up.add(task)
        task.add_done_callback(self._cleaning_up.discard)


async def _loaded(lazy: Lazy[T], what: str) -> T:
    try:
        return await lazy.get()
    except LoadFailed as exc:
        raise SandboxUnavailable(f"{what} cannot be loaded: {exc}") from exc


def _proxy_server() -> "type[ProxyServer]":
    from app_server.host.proxy.server import ProxyServer

    return ProxyServer


def _launcher() -> "type[SandboxLauncher]":
    from app_server.host.sandbox.launcher import SandboxLauncher

    return SandboxLauncher


def _hold(confinement: Confinement, anew: bool, records: PlaceholderRecords | None) -> None:
    hold(confinement, anew=anew)
    if records is not None:
        records.remove_left()


def _wrap(
    sandbox: "SandboxLauncher",
    launch: CommandLaunch,
    confinement: Confinement,
    records: PlaceholderRecords | None,
) -> WrappedCommand:
    if records is not None:
        records.remove_left()
    cwd = os.path.realpath(launch.cwd)
    has_terminal = launch.terminal is not None
    try:
        real = resolved(confinement)
    except PlaceChanged as exc:
        raise SandboxUnavailable(str(exc)) from None
    return sandbox.wrap(launch.argv, cwd, real, tty=has_terminal)


async def _close(
    wrapped: WrappedCommand, command: RunningCommand | None, serving: "ProxyServer | None"
) -> None:
    if command is not None:
        await command.gone.wait()
    if serving is not None:
        await serving.aclose()
    await anyio.to_thread.run_sync(wrapped.close)
