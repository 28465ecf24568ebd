"""A command of the user: its item, its process, and what the model is to know of it.

It runs in a turn of its own, or beside the turn that runs.

Source: docs/tools.md, "Commands of the user".
"""

import logging
from contextlib import suppress
from dataclasses import dataclass

import anyio
import anyio.to_thread

from app_server.host.commands.shell import find_shell, shown_line
from app_server.host.environments import UnknownEnvironment
from app_server.models.interface import ModelFailure
from app_server.observability.log_context import start_apart
from app_server.permissions.commands.wrappers import read_command
from app_server.permissions.shell.actions import command_actions
from app_server.sessions.input import ClientInput
from app_server.sessions.turn import ThreadTurns, Turn
from app_server.tools.environments import NoEnvironment
from app_server.turns.commands import (
    NOT_STARTED,
    UNCONFINED_WORK,
    ShellLine,
    ThreadCommand,
    ThreadMachine,
    cut_to,
    start_failure,
)
from app_server.turns.context import ThreadContext
from app_server.turns.recorder import TurnRecorder
from app_server.turns.slot import RunningTurn, SessionClosed, SessionUnloading
from protocol.log.rollout import LOCAL, WorkingFolder
from protocol.model import JsonObject
from protocol.turns.items import CommandExecutionThreadItem
from protocol.turns.turn import TurnError

DEFAULT_S = 3600.0
"""For a command whose client named no time."""

NO_SHELL = "shell is unavailable in this session"
"""In the words of Codex."""

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
    """A command of the user that was not announced yet."""

    item: CommandExecutionThreadItem
    line: str
    folder: WorkingFolder
    shell: str | None
    """Its path there; None if the environment is out of reach."""
    login: bool


class UserShell:
    """Runs command lines of the user in one loaded thread."""

    def __init__(self, context: ThreadContext) -> None:
        self._clients = context.clients
        self._machine = context.machine
        self._grammar = context.server.grammar
        self._commands = context.commands

    async def run(self, command: UserCommand, turn: RunningTurn) -> None:
        """Run a command in a turn of its own, to its end.

        Raises:
            ModelFailure: the thread has no environment; clients were notified.
            OSError: the log cannot be written.
        """
        try:
            prepared = await self.prepare(command, turn.recorder)
        except NoEnvironment as exc:
            self.refuse(turn, str(exc))
            raise ModelFailure(str(exc), None) from exc
        thread_command = self.announce(prepared, turn.recorder)
        try:
            await self.start(prepared, thread_command, turn)
            await self.finish(command, thread_command, turn)
        finally:
            # No model answers meanwhile, so it needs no queue; one that was cut off is shown too.
            with anyio.CancelScope(shield=True):
                await turn.recorder.remember(self.message(command, thread_command))

    def refuse(self, turn: RunningTurn, reason: str) -> None:
        """Notify clients that a command was not run in a turn."""
        self._clients.error(turn.id, TurnError(message=reason))

    async def prepare(self, command: UserCommand, recorder: TurnRecorder) -> PreparedCommand:
        """Make the item of a command; nothing is announced or written.

        Raises:
            NoEnvironment: the thread has none.
        """
        settings, machine = recorder.log.state.in_force, self._machine
        if not settings.working_folders:
            raise NoEnvironment(NO_SHELL)
        folder = settings.working_folders[0]
        shell = await _shell_of(machine, folder)
        login = machine.settings.allow_login_shell
        script = await read_command(self._grammar, command.line)
        item = CommandExecutionThreadItem(
            id=recorder.clock.new_id(),
            command=shown_line(shell or "sh", command.line, login=login),
            cwd=folder.cwd,
            source="userShell",
            status="inProgress",
            command_actions=command_actions(script, folder.cwd),
        )
        return PreparedCommand(item, command.line, folder, shell, login)

    def announce(self, prepared: PreparedCommand, recorder: TurnRecorder) -> ThreadCommand:
        """Give a command its place among the thread's, and announce its item."""
        thread_command = self._commands.add(prepared.item, prepared.line, recorder)
        recorder.started(thread_command.item)
        return thread_command

    async def start(
        self, prepared: PreparedCommand, thread_command: ThreadCommand, turn: RunningTurn
    ) -> None:
        """Start an announced command; what cannot be started is complete then.

        Cancelling completes its item too: it may have printed before its start was known.

        Raises:
            OSError: the log cannot be written.
        """
        folder, shell = prepared.folder, prepared.shell
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
            await self._commands.start(thread_command, line)
        except OSError as exc:
            await thread_command.complete(NOT_STARTED, start_failure(exc, folder.cwd))
        except BaseException:
            await end_command(thread_command, turn)
            self._commands.forget(thread_command)
            raise

    def forget(self, thread_command: ThreadCommand) -> None:
        """Drop a command that was announced and will not run."""
        self._commands.forget(thread_command)

    async def finish(
        self, command: UserCommand, thread_command: ThreadCommand, turn: RunningTurn
    ) -> JsonObject:
        """Wait for the end of a command, and give what the model is to know of it.

        Cancelling ends the command, and completes its item; `message` then gives the same.

        Raises:
            OSError: the log cannot be written.
        """
        code: int | None = None
        try:
            with anyio.move_on_after(command.timeout_s) as limit:
                await _ended(thread_command)
            code = TIMED_OUT if limit.cancelled_caught else None
        finally:
            await end_command(thread_command, turn, code)
            self._commands.forget(thread_command)
        return self.message(command, thread_command)

    @staticmethod
    def message(command: UserCommand, thread_command: ThreadCommand) -> JsonObject:
        """Return what the model is to know of a command whose item is complete."""
        item, kept = thread_command.item, thread_command.read()
        output = cut_to(kept, command.output_limit_bytes) or item.aggregated_output or ""
        text = (
            f"<user_shell_command>\n<command>\n{command.line}\n</command>\n<result>\n"
            f"Exit code: {item.exit_code}\n"
            f"Duration: {(item.duration_ms or 0) / 1000:.4f} seconds\nOutput:\n{output}\n"
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


async def end_command(
    thread_command: ThreadCommand, turn: RunningTurn, exit_code: int | None = None
) -> None:
    """End a command, and complete its item; it says so if the user interrupted its turn."""
    await (thread_command.abort() if turn.is_interrupted else thread_command.stop(exit_code))


async def _ended(thread_command: ThreadCommand) -> None:
    if thread_command.process is None:
        await thread_command.completed.wait()
    else:
        await thread_command.process.finished.wait()


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
