"""Commands on this machine, each within what confines it: the door of this room.

Source: docs/tools.md, "Commands", "Sandbox".
"""

import asyncio
import os
from dataclasses import replace

import anyio
import anyio.to_thread

from app_server.host.commands.command import OnOutput, RunningCommand
from app_server.host.commands.commands import Commands
from app_server.host.commands.launch import CommandLaunch
from app_server.host.sandbox.launcher import SandboxLauncher, Wrapped
from app_server.permissions.confinement import Confinement
from app_server.permissions.resolving import resolved


class MachineCommands:
    """All commands of one server; nothing of them outlives it."""

    def __init__(self) -> None:
        self._commands = Commands()
        self._sandbox = SandboxLauncher()
        self._putting_away: set[asyncio.Task[None]] = set()

    async def warm_up(self) -> None:
        """Start what starts commands, so that the first one need not wait for it.

        Raises:
            OSError: it cannot be started.
        """
        await self._commands.warm_up()

    async def start(
        self, launch: CommandLaunch, confinement: Confinement, on_output: OnOutput
    ) -> RunningCommand:
        """Start a command; it runs until it ends or is stopped, whoever waits for it.

        `confinement` is as settings have it: links are followed here. `on_output` never waits.

        Raises:
            SandboxUnavailable: it cannot be confined on this machine, and was not started.
            OSError: it cannot be started; `filename` names the folder or program.
        """
        if not confinement.is_confined:
            return await self._commands.start(launch, on_output)
        wrapped = await anyio.to_thread.run_sync(self._wrap, launch, confinement)
        command: RunningCommand | None = None
        try:
            confined = replace(
                launch,
                argv=wrapped.argv,
                takes_terminal=wrapped.takes_terminal,
                inherited_fds=(*launch.inherited_fds, *wrapped.pass_fds),
                is_wrapped=True,
            )
            command = await self._commands.start(confined, on_output)
        finally:
            wrapped.started()
            self._put_away(wrapped, command)
        return command

    async def aclose(self) -> None:
        """End all commands and let go of what they had."""
        await self._commands.aclose()
        while self._putting_away:
            await asyncio.wait(self._putting_away)

    def _wrap(self, launch: CommandLaunch, confinement: Confinement) -> Wrapped:
        cwd = os.path.realpath(launch.cwd)
        has_terminal = launch.terminal is not None
        return self._sandbox.wrap(launch.argv, cwd, resolved(confinement), tty=has_terminal)

    def _put_away(self, wrapped: Wrapped, command: RunningCommand | None) -> None:
        task = asyncio.get_running_loop().create_task(_close(wrapped, command))
        self._putting_away.add(task)
        task.add_done_callback(self._putting_away.discard)


async def _close(wrapped: Wrapped, command: RunningCommand | None) -> None:
    if command is not None:
        await command.gone.wait()
    await anyio.to_thread.run_sync(wrapped.close)
