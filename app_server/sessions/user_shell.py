"""A command of the user: its item, its process, and what the model is to know of it.

Source: docs/tools.md, "Commands of the user".
"""

from dataclasses import dataclass

import anyio
import anyio.to_thread

from app_server.host.commands.shell import find_shell, shown_line
from app_server.host.environments import UnknownEnvironment
from app_server.models.interface import ModelFailure
from app_server.permissions.commands.wrappers import read_command
from app_server.permissions.shell.actions import command_actions
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
from app_server.turns.slot import RunningTurn
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
