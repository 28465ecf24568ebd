"""A command line that the user runs in a thread: unconfined, and shown to the model afterwards.

It runs in the first environment of the thread.

Source: docs/tools.md, "Commands of the user"; docs/environments.md, "Threads in an environment".
"""

from dataclasses import dataclass

import anyio
import anyio.to_thread

from app_server.host.commands.shell import find_shell, shown_line
from app_server.host.environments import UnknownEnvironment
from app_server.permissions.commands.nested import read_command
from app_server.permissions.shell.actions import command_actions
from app_server.permissions.shell.parse import ScriptReader
from app_server.tools.commands.run import NOT_STARTED, CommandRun
from app_server.tools.commands.terminals import CommandPlace, ShellLine, Terminals
from app_server.tools.commands.text import cut_to
from app_server.tools.elsewhere import UNCONFINED_WORK
from app_server.tools.environments import NoEnvironment
from app_server.turns.recorder import TurnRecorder
from app_server.turns.running_turn import RunningTurn
from protocol.log.rollout import LOCAL, WorkingFolder
from protocol.model import JsonObject
from protocol.turns.items import CommandExecutionThreadItem

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
    """How much of its output the model reads."""


class UserShell:
    """Runs command lines of the user in one loaded thread."""

    def __init__(self, terminals: Terminals, scripts: ScriptReader) -> None:
        self._terminals = terminals
        self._scripts = scripts

    async def begin(self, command: UserCommand, recorder: TurnRecorder) -> CommandRun:
        """Announce the item of a command, and start it; what cannot be started is complete then.

        Raises:
            NoEnvironment: the thread has none; nothing was announced.
            OSError: the log cannot be written.
        """
        settings, place = recorder.thread.state.in_force, self._terminals.place
        if not settings.working_folders:
            raise NoEnvironment(NO_SHELL)
        folder = settings.working_folders[0]
        shell = await _shell_of(place, folder)
        login = place.settings.allow_login_shell
        script = await read_command(self._scripts, command.line)
        item = CommandExecutionThreadItem(
            id=recorder.new_id(),
            command=shown_line(shell or "sh", command.line, login=login),
            cwd=folder.cwd,
            source="userShell",
            status="inProgress",
            command_actions=command_actions(script, folder.cwd),
        )
        await self._terminals.make_room(recorder)
        run = self._terminals.open(item, command.line, recorder)
        recorder.started(item)
        try:
            if shell is None:
                raise OSError(f"environment `{folder.environment_id}` is out of reach")
            line = ShellLine(
                environment_id=folder.environment_id,
                cwd=folder.cwd,
                shell=shell,
                login=login,
                policy=UNCONFINED_WORK,
            )
            await self._terminals.start(run, line)
        except OSError as exc:
            place_or_program = f"{exc.filename}: " if exc.filename else ""
            await run.complete(NOT_STARTED, f"{place_or_program}{exc.strerror or exc}")
        return run

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
            await (run.abort() if turn.is_interrupted else run.stop(code))
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


async def _shell_of(place: CommandPlace, folder: WorkingFolder) -> str | None:
    """Return the path of the user's shell there; None on a machine that is away."""
    if folder.environment_id == LOCAL:
        return await anyio.to_thread.run_sync(find_shell, None)
    try:
        shell, _ = await place.environments.info(folder.environment_id)
    except (OSError, UnknownEnvironment):
        return None
    return shell.path


async def _ended(run: CommandRun) -> None:
    if run.process is None:
        await run.completed.wait()
    else:
        await run.process.finished.wait()
