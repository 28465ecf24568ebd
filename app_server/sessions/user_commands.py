"""Commands that the user runs in a thread: in a turn of their own, or beside the one that runs.

Source: docs/tools.md, "Commands of the user".
"""

import logging
from contextlib import suppress
from dataclasses import dataclass

import anyio

from app_server.observability.log_context import start_apart
from app_server.sessions.input import ClientInput
from app_server.sessions.turn import ThreadTurns, Turn
from app_server.sessions.user_shell import (
    PreparedCommand,
    UserCommand,
    UserShell,
    end_command,
)
from app_server.tools.environments import NoEnvironment
from app_server.turns.commands import ThreadCommand
from app_server.turns.context import ThreadContext
from app_server.turns.recorder import TurnRecorder
from app_server.turns.slot import RunningTurn, SessionClosed, SessionUnloading
from protocol.model import JsonObject

NOT_RUN = "the command was not run: its turn was interrupted first"
CANNOT_RUN = "the command was not run: the thread is being closed, or its log cannot be written"

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UserCommands:
    """The commands of the user in one loaded thread."""

    context: ThreadContext
    turns: ThreadTurns
    given: ClientInput
    """Takes what the model is to know."""

    async def start(self, command: UserCommand) -> "Turn | CommandBeside":
        """Accept a command; once the client has been answered, `run_soon` of the result follows.

        Raises:
            SessionClosed
            OSError: the disk refused; nothing is run.
        """
        async with self.context.slot.reserve():
            turn = self.context.slot.turn
            if turn is None:
                return await self.turns.begin(command)
        return CommandBeside(self, command, turn)


@dataclass(frozen=True, slots=True)
class CommandBeside:
    """A command beside a turn that may end first; it is interrupted with the turn."""

    commands: UserCommands
    command: UserCommand
    turn: RunningTurn

    def run_soon(self) -> None:
        """Start the command in a task of its thread."""
        context = self.commands.context
        start_apart(context.tasks, self.run, thread_id=context.log.id)

    async def run(self) -> None:
        """Run the command to its end; what becomes of it is for clients and the log.

        A turn that has ended before the command could be announced takes nothing any more: the
        command gets a turn of its own then, unless the user interrupted.
        """
        context, turn = self.commands.context, self.turn
        shell, thread_command = UserShell(context), None
        try:
            # Not the turn's own recorder, which may have a history of its own meanwhile.
            recorder = TurnRecorder(context.log, turn.id, context.clients, context.clock)
            prepared = await shell.prepare(self.command, recorder)
            thread_command = await self._announce(shell, prepared, recorder)
            if thread_command is None:
                if turn.is_interrupted:
                    shell.refuse(turn, NOT_RUN)
                else:
                    (await self.commands.start(self.command)).run_soon()
                return
            await shell.start(prepared, thread_command, turn)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._end_if_interrupted, thread_command)
                output = await self._finished(shell, thread_command)
                tasks.cancel_scope.cancel()
            if output is not None:
                await self.commands.given.inject([output])
        except NoEnvironment as exc:
            shell.refuse(turn, str(exc))
        except (OSError, SessionClosed, SessionUnloading) as exc:
            logger.warning("a command of the user in thread %s failed: %s", context.log.id, exc)
            if thread_command is None:
                shell.refuse(turn, CANNOT_RUN)

    async def _announce(
        self, shell: UserShell, prepared: PreparedCommand, recorder: TurnRecorder
    ) -> ThreadCommand | None:
        """Announce and write an item that may outlive its turn; None if that has ended.

        Raises:
            OSError: the disk refused; the command must not be started.
        """
        slot = self.commands.context.slot
        async with slot.exclusive:
            if slot.turn is not self.turn:
                return None
            thread_command = shell.announce(prepared, recorder)
            try:
                await thread_command.leave_running()
            except BaseException:
                recorder.abandoned(thread_command.item.id)
                shell.forget(thread_command)
                raise
            return thread_command

    async def _finished(self, shell: UserShell, thread_command: ThreadCommand) -> JsonObject | None:
        """Wait for the command; None if its end cannot be written."""
        try:
            return await shell.finish(self.command, thread_command, self.turn)
        except OSError as exc:
            logger.warning(
                "the end of command %s cannot be written: %s", thread_command.item.id, exc
            )
            return None

    async def _end_if_interrupted(self, thread_command: ThreadCommand) -> None:
        slot = self.commands.context.slot
        if slot.turn is self.turn:
            await slot.idle.wait()
        if self.turn.scope.cancel_called:
            # Whoever waits for it gets the error if its end cannot be written.
            with suppress(OSError):
                await end_command(thread_command, self.turn)
