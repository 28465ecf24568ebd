"""Commands that the user runs in a thread: in the turn that runs, or in one of their own.

Source: docs/tools.md, "Commands of the user".
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import anyio
import anyio.abc

from app_server.models.interface import ModelFailure
from app_server.observability.logs.context import start_apart
from app_server.sessions.errors import SessionClosed, SessionUnloading
from app_server.sessions.input.client import ClientInput
from app_server.sessions.turn.context import ThreadContext
from app_server.sessions.turn.turn import CommandWork, ThreadTurns
from app_server.tools.commands.run import CommandRun
from app_server.tools.commands.user_shell import UserCommand, UserShell
from app_server.tools.environments import NoEnvironment
from app_server.turns.running_turn import RunningTurn
from protocol.model import JsonObject
from protocol.turns.notifications import ErrorNotification
from protocol.turns.turn import TurnError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UserCommands:
    """The commands of the user in one loaded thread."""

    context: ThreadContext
    turns: ThreadTurns
    given: ClientInput
    """Takes what the model is to know."""
    shell: UserShell
    tasks: anyio.abc.TaskGroup
    """Owns commands beside a turn."""

    async def start(self, command: UserCommand) -> Callable[[], None]:
        """Accept a command; gives what is to be called once the caller has been answered.

        Raises:
            SessionClosed
            OSError: the disk refused; nothing is run.
        """
        async with self.context.slot.reserve():
            turn = self.context.slot.turn
            if turn is None:
                alone = CommandWork(partial(self._alone, command))
                return (await self.turns.begin(alone)).run_soon
        return partial(self._begin_beside, command, turn)

    def _begin_beside(self, command: UserCommand, turn: RunningTurn) -> None:
        start_apart(self.tasks, self._beside, command, turn, thread_id=self.context.thread.id)

    async def _alone(self, command: UserCommand, turn: RunningTurn) -> None:
        """Do what a turn of its own does.

        Raises:
            ModelFailure: the thread has no environment; clients were notified.
            OSError: the log cannot be written.
        """
        recorder = self.context.recorder(turn.id)
        try:
            running = await self.shell.begin(command, recorder)
        except NoEnvironment as exc:
            self._refuse(turn.id, exc)
            raise ModelFailure(str(exc), None) from exc
        try:
            await self.shell.finish(command, running, turn)
        finally:
            # No model answers meanwhile, so it needs no queue; one that was cut off is shown too.
            with anyio.CancelScope(shield=True):
                await recorder.remember(self.shell.message(command, running))

    async def _beside(self, command: UserCommand, turn: RunningTurn) -> None:
        """Run a command in a turn that may end first; it is interrupted with the turn."""
        try:
            running = await self.shell.begin(command, self.context.recorder(turn.id))
            await running.leave_running()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._end_if_interrupted, turn, running)
                output = await self._finished(command, running, turn)
                tasks.cancel_scope.cancel()
            if output is not None:
                await self.given.inject([output])
        except NoEnvironment as exc:
            self._refuse(turn.id, exc)
        except (OSError, SessionClosed, SessionUnloading) as exc:
            logger.warning(
                "a command of the user in thread %s failed: %s", self.context.thread.id, exc
            )

    def _refuse(self, turn_id: str, reason: NoEnvironment) -> None:
        recorder = self.context.recorder(turn_id)
        error = TurnError(message=str(reason))
        recorder.emit(ErrorNotification(**recorder.ids, error=error, will_retry=False))

    async def _finished(
        self, command: UserCommand, running: CommandRun, turn: RunningTurn
    ) -> JsonObject | None:
        """Wait for a command; None if its end cannot be written."""
        try:
            return await self.shell.finish(command, running, turn)
        except OSError as exc:
            logger.warning("the end of command %s cannot be written: %s", running.item.id, exc)
            return None

    async def _end_if_interrupted(self, turn: RunningTurn, running: CommandRun) -> None:
        if self.context.slot.turn is turn:
            await self.context.slot.idle.wait()
        if turn.scope.cancel_called:
            # Whoever waits for it gets the error if its end cannot be written.
            with suppress(OSError):
                await (running.abort() if turn.is_interrupted else running.stop())
