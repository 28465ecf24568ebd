"""Commands that the user runs in a thread: in the turn that runs, or in one of their own.

Source: docs/tools.md, "Commands of the user".
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import anyio
import anyio.to_thread

from app_server.host.commands.shell import find_shell, shown_line
from app_server.host.environments import UnknownEnvironment
from app_server.models.interface import ModelFailure
from app_server.observability.log_context import start_apart
from app_server.permissions.commands.nested import read_command
from app_server.permissions.shell.actions import command_actions
from app_server.sessions.input.client import ClientInput
from app_server.sessions.turn.turn import CommandWork, ThreadTurns
from app_server.tools.environments import NoEnvironment
from app_server.turns.commands.run import NOT_STARTED, CommandRun
from app_server.turns.commands.terminals import UNCONFINED_WORK, ShellLine, ThreadMachine
from app_server.turns.commands.text import cut_to
from app_server.turns.context import ThreadContext
from app_server.turns.recorder import TurnRecorder
from app_server.turns.slot import RunningTurn
from app_server.turns.thread_errors import SessionClosed, SessionUnloading
from protocol.log.rollout import LOCAL, WorkingFolder
from protocol.model import JsonObject
from protocol.turns.items import CommandExecutionThreadItem
from protocol.turns.notifications import ErrorNotification
from protocol.turns.turn import TurnError

DEFAULT_S = 3600.0
"""For a command whose client named no time."""

NO_SHELL = "shell is unavailable in this session"
"""In the words of Codex."""

NOT_RUN = "the command was not run: its turn was interrupted first"

TIMED_OUT = 124
"""The exit code of what took too long, as timeout(1) has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserCommand:
    """A line that a user wants to run."""

    line: str
    timeout_s: float = DEFAULT_S
    output_limit_bytes: int
    """Bytes of its output that the model reads."""


@dataclass(frozen=True, slots=True)
class PreparedCommand:
    """A command of the user that has its place among the thread's, and was not announced yet."""

    run: CommandRun
    folder: WorkingFolder
    shell: str | None
    """Its path there; None if the environment is out of reach."""
    login: bool


class UserShell:
    """Runs command lines of the user in one loaded thread."""

    def __init__(self, context: ThreadContext) -> None:
        self._machine = context.machine
        self._terminals = context.terminals

    async def prepare(self, command: UserCommand, recorder: TurnRecorder) -> PreparedCommand:
        """Make the item of a command, and room for it; nothing is announced or written.

        Raises:
            NoEnvironment: the thread has none.
            OSError: the log cannot be written.
        """
        settings, machine = recorder.log.state.in_force, self._machine
        if not settings.working_folders:
            raise NoEnvironment(NO_SHELL)
        folder = settings.working_folders[0]
        shell = await _shell_of(machine, folder)
        login = machine.settings.allow_login_shell
        script = await read_command(machine.scripts, command.line)
        item = CommandExecutionThreadItem(
            id=recorder.new_id(),
            command=shown_line(shell or "sh", command.line, login=login),
            cwd=folder.cwd,
            source="userShell",
            status="inProgress",
            command_actions=command_actions(script, folder.cwd),
        )
        await self._terminals.make_room()
        run = self._terminals.open(item, command.line, recorder)
        return PreparedCommand(run, folder, shell, login)

    async def start(self, prepared: PreparedCommand, turn: RunningTurn) -> None:
        """Start an announced command; what cannot be started is complete then.

        Cancelling completes its item too: it may have printed before its start was known.

        Raises:
            OSError: the log cannot be written.
        """
        run, folder, shell = prepared.run, prepared.folder, prepared.shell
        try:
            if shell is None:
                raise OSError(f"environment `{folder.environment_id}` is out of reach")
            line = ShellLine(
                environment_id=folder.environment_id,
                cwd=folder.cwd,
                shell=shell,
                login=prepared.login,
                policy=UNCONFINED_WORK,
            )
            await self._terminals.start(run, line)
        except OSError as exc:
            place_or_program = f"{exc.filename}: " if exc.filename else ""
            await run.complete(NOT_STARTED, f"{place_or_program}{exc.strerror or exc}")
        except BaseException:
            await _end(run, turn)
            self._terminals.forget(run)
            raise

    def forget(self, run: CommandRun) -> None:
        """Drop a command that was prepared and will not run."""
        self._terminals.forget(run)

    async def finish(self, command: UserCommand, run: CommandRun, turn: RunningTurn) -> JsonObject:
        """Wait for the end of a command, and give what the model is to know of it.

        Cancelling ends the command, and completes its item; `message` then gives the same.

        Raises:
            OSError: the log cannot be written.
        """
        code: int | None = None
        try:
            with anyio.move_on_after(command.timeout_s) as limit:
                await _ended(run)
            code = TIMED_OUT if limit.cancelled_caught else None
        finally:
            await _end(run, turn, code)
            self._terminals.forget(run)
        return self.message(command, run)

    @staticmethod
    def message(command: UserCommand, run: CommandRun) -> JsonObject:
        """Return what the model is to know of a command whose item is complete."""
        output = cut_to(run.read(), command.output_limit_bytes) or run.item.aggregated_output or ""
        text = (
            f"<user_shell_command>\n<command>\n{command.line}\n</command>\n<result>\n"
            f"Exit code: {run.item.exit_code}\n"
            f"Duration: {(run.item.duration_ms or 0) / 1000:.4f} seconds\nOutput:\n{output}\n"
            "</result>\n</user_shell_command>"
        )
        return {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": text}],
        }


async def _shell_of(machine: ThreadMachine, folder: WorkingFolder) -> str | None:
    """Return the path of the user's shell there; None on a machine that is away."""
    if folder.environment_id == LOCAL:
        return await anyio.to_thread.run_sync(find_shell, None)
    try:
        shell, _ = await machine.environments.info(folder.environment_id)
    except (OSError, UnknownEnvironment):
        return None
    return shell.path


async def _end(run: CommandRun, turn: RunningTurn, exit_code: int | None = None) -> None:
    """End a command, and complete its item; it says so if the user interrupted its turn."""
    await (run.abort() if turn.is_interrupted else run.stop(exit_code))


async def _ended(run: CommandRun) -> None:
    if run.process is None:
        await run.completed.wait()
    else:
        await run.process.finished.wait()


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UserCommands:
    """The commands of the user in one loaded thread."""

    context: ThreadContext
    turns: ThreadTurns
    given: ClientInput
    """Takes what the model is to know."""
    shell: UserShell

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
        start_apart(self.context.tasks, self._beside, command, turn, thread_id=self.context.log.id)

    async def _alone(self, command: UserCommand, turn: RunningTurn) -> None:
        """Do what a turn of its own does.

        Raises:
            ModelFailure: the thread has no environment; clients were notified.
            OSError: the log cannot be written.
        """
        recorder = self.context.recorder(turn.id)
        try:
            prepared = await self.shell.prepare(command, recorder)
        except NoEnvironment as exc:
            self._refuse(turn.id, str(exc))
            raise ModelFailure(str(exc), None) from exc
        running = prepared.run
        recorder.started(running.item)
        try:
            await self.shell.start(prepared, turn)
            await self.shell.finish(command, running, turn)
        finally:
            # No model answers meanwhile, so it needs no queue; one that was cut off is shown too.
            with anyio.CancelScope(shield=True):
                await recorder.remember(self.shell.message(command, running))

    async def _beside(self, command: UserCommand, turn: RunningTurn) -> None:
        """Run a command in a turn that may end first; it is interrupted with the turn.

        A turn that has ended before the command could be announced takes nothing any more: the
        command gets a turn of its own then, unless the user interrupted.
        """
        try:
            recorder = self.context.recorder(turn.id)
            prepared = await self.shell.prepare(command, recorder)
            if not await self._announce_beside(prepared, recorder, turn):
                if turn.is_interrupted:
                    self._refuse(turn.id, NOT_RUN)
                else:
                    (await self.start(command))()
                return
            await self.shell.start(prepared, turn)
            running = prepared.run
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._end_if_interrupted, turn, running)
                output = await self._finished(command, running, turn)
                tasks.cancel_scope.cancel()
            if output is not None:
                await self.given.inject([output])
        except NoEnvironment as exc:
            self._refuse(turn.id, str(exc))
        except (OSError, SessionClosed, SessionUnloading) as exc:
            logger.warning(
                "a command of the user in thread %s failed: %s", self.context.log.id, exc
            )

    async def _announce_beside(
        self, prepared: PreparedCommand, recorder: TurnRecorder, turn: RunningTurn
    ) -> bool:
        """Announce and write an item that may outlive its turn; False if that has ended.

        Raises:
            OSError: the disk refused; the command must not be started.
        """
        run, announced = prepared.run, False
        try:
            async with self.context.slot.exclusive():
                if self.context.slot.turn is turn:
                    recorder.started(run.item)
                    announced = await run.leave_running()
        finally:
            if not announced:
                recorder.abandoned(run.item.id)
                self.shell.forget(run)
        return announced

    def _refuse(self, turn_id: str, reason: str) -> None:
        recorder = self.context.recorder(turn_id)
        error = TurnError(message=reason)
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
                await _end(running, turn)
