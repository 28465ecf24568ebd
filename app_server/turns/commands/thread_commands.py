"""The commands of one loaded thread that run, or have ended and not been read to their end.

Source: docs/tools.md, "Commands".
"""

import logging
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import anyio
import anyio.abc

from app_server.host.commands.local_command import CommandLaunch, TerminalSize
from app_server.host.commands.local_commands import LocalCommands
from app_server.host.commands.shell import shell_command
from app_server.host.environments import Environments
from app_server.host.exec.client.starts import CommandOrder
from app_server.host.proxy.gate import Gate
from app_server.observability.log_context import THREAD, start_apart
from app_server.permissions.confinement.confinement import UNCONFINED, Confinement
from app_server.permissions.environment import PLAIN_OUTPUT, CommandSettings, command_environment
from app_server.permissions.shell.parse import ScriptReader
from app_server.turns.commands.thread_command import ThreadCommand
from app_server.turns.recorder import TurnRecorder
from app_server.turns.servers import ThreadServers
from protocol.exec.processes import CommandVariables, WorkPolicy
from protocol.log.rollout import LOCAL
from protocol.turns.items import CommandExecutionThreadItem
from protocol.turns.policy import DangerFullAccessSandboxPolicy

logger = logging.getLogger(__name__)

MAX_COMMANDS = 64
"""Of one thread, at a time."""

SNAPSHOT_BYTES = 400_000
"""Of the output of all running commands, for a client that joins: it has to fit into a message."""

MIN_SESSION, MAX_SESSION = 1_000, 99_999

UNCONFINED_WORK = WorkPolicy(sandbox_policy=DangerFullAccessSandboxPolicy())
"""For what runs on another machine without a sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadMachine:
    """The machines that the commands of a thread run on, and with what."""

    local: LocalCommands
    """Commands of this machine."""
    environments: Environments
    """Other machines that commands can run on."""
    settings: CommandSettings
    scripts: ScriptReader
    environ: Mapping[str, str] = field(repr=False)
    """The variables of this process."""
    own_credentials: frozenset[str]
    """Names of variables with what the server, and its models, sign in with."""
    servers: ThreadServers
    """Whose tokens are in variables too."""

    @property
    def credentials(self) -> frozenset[str]:
        """Names of variables that commands must not have."""
        return self.own_credentials | self.servers.credential_variables()


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellLine:
    """Environment, folder and shell of a command line."""

    environment_id: str
    cwd: str
    shell: str
    """Its path there."""
    named_shell: str | None = None
    """As it is looked for on another machine; None: that of the user there."""
    login: bool
    tty: bool = False
    policy: WorkPolicy
    """Within what it runs on another machine, while anything confines it."""


class ThreadCommands:
    """The commands of one loaded thread, by session id."""

    def __init__(self, machine: ThreadMachine, tasks: anyio.abc.TaskGroup) -> None:
        """`tasks` owns what goes on behind the turns."""
        self.machine = machine
        self._tasks = tasks
        self._commands: dict[str, ThreadCommand] = {}
        self._evicted: set[ThreadCommand] = set()
        """Commands that are ending to make room."""
        self._opened = 0
        self._closed = False

    def add(
        self, item: CommandExecutionThreadItem, line: str, recorder: TurnRecorder
    ) -> ThreadCommand:
        """Give a command its session id, which is in its item from now on."""
        while (session_id := _new_session_id()) in self._commands:
            pass
        item.process_id = session_id
        self._opened += 1
        command = ThreadCommand(item, line, recorder, self._opened)
        self._commands[session_id] = command
        return command

    async def start(
        self,
        command: ThreadCommand,
        line: ShellLine,
        confinement: Confinement = UNCONFINED,
        gate: Gate | None = None,
    ) -> None:
        """Start the process of a command; `gate` as LocalCommands.start has it.

        Raises:
            SandboxUnavailable, OSError: see LocalCommands.start, Environments.start_command; or
                the thread is being closed.
        """
        if self._closed:
            raise OSError(0, "the thread is being closed")
        machine = self.machine
        given = _given(command.thread_id, command.item.id)
        command.is_ordered = True
        if line.environment_id == LOCAL:
            launch = CommandLaunch(
                shell_command(line.shell, command.line, login=line.login),
                command_environment(
                    machine.settings.environment, machine.environ, machine.credentials, given
                ),
                line.cwd,
                TerminalSize() if line.tty else None,
            )
            command.process = await machine.local.start(launch, confinement, command.take, gate)
            await self._stop_if_closed(command)
            return
        order = CommandOrder(
            line=command.line,
            policy=line.policy if confinement.is_confined else UNCONFINED_WORK,
            shell=line.named_shell,
            login=line.login,
            cwd=line.cwd,
            tty=line.tty,
            variables=self._variables(given),
        )
        command.process = await machine.environments.start_command(
            line.environment_id, order, command.take
        )
        await self._stop_if_closed(command)

    async def _stop_if_closed(self, command: ThreadCommand) -> None:
        """Stop what has started after its item was completed, as the thread is being closed.

        Raises:
            OSError: it was stopped.
        """
        if command.process is not None and (self._closed or command.completed.is_set()):
            await command.process.stop()
            raise OSError(0, "the thread is being closed")

    def _variables(self, given: dict[str, str]) -> CommandVariables:
        policy = self.machine.settings.environment
        return CommandVariables(
            inherit=policy.inherit,
            ignore_default_excludes=policy.ignore_default_excludes,
            exclude=list(policy.exclude),
            set=dict(policy.set),
            include_only=list(policy.include_only),
            credentials=sorted(self.machine.credentials),
            given=given,
        )

    async def make_room(self) -> str | None:
        """End the command that has been silent longest, if there are too many; says which.

        Raises:
            OSError: the disk refused its item.
        """
        if len(self._commands) < MAX_COMMANDS:
            return None
        ended = [command for command in self._commands.values() if command.completed.is_set()]
        if ended:
            self.forget(min(ended, key=_silent_since))
            return None
        # Calls beside this one end others.
        running = [
            command
            for command in self._commands.values()
            if command.is_background and command not in self._evicted
        ]
        if not running:
            return None
        silent = min(running, key=_silent_since)
        self._evicted.add(silent)
        try:
            await silent.stop()
        finally:
            self._evicted.discard(silent)
            self.forget(silent)
        return (
            f"Session {silent.session_id} was ended to make room: a thread has at most "
            f"{MAX_COMMANDS} commands, and it had been silent longest"
        )

    def find(self, session_id: str) -> ThreadCommand | None:
        """Return a command that was left running, and was not read to its end."""
        command = self._commands.get(session_id)
        return command if command is not None and command.is_background else None

    def forget(self, command: ThreadCommand) -> None:
        """Drop a command that has ended, and whose output the model has read."""
        self._commands.pop(command.session_id, None)

    async def leave(self, command: ThreadCommand) -> bool:
        """Leave a command running in the background; False if it has ended meanwhile.

        Raises:
            OSError: the disk refused.
        """
        if not await command.leave_running():
            return False
        start_apart(self._tasks, command.follow, thread_id=THREAD.get())
        return True

    def background(self) -> Iterator[ThreadCommand]:
        """Walk the commands that run behind the turns, the oldest first."""
        for command in list(self._commands.values()):
            if command.is_background and not command.completed.is_set():
                yield command

    def snapshot(self) -> dict[str, CommandExecutionThreadItem]:
        """Return the items of running commands, by id, with the output that clients were sent.

        Deltas that are sent from now on continue it.
        """
        running = [command for command in self._commands.values() if not command.completed.is_set()]
        return {
            command.item.id: command.snapshot(SNAPSHOT_BYTES // len(running)) for command in running
        }

    async def end_background(self) -> None:
        """End all that runs behind the turns, at once, and wait for it."""
        async with anyio.create_task_group() as tasks:
            for command in self.background():
                tasks.start_soon(_stop, command)

    async def aclose(self) -> None:
        """Start nothing more, and end everything."""
        self._closed = True
        async with anyio.create_task_group() as tasks:
            for command in list(self._commands.values()):
                tasks.start_soon(_stop, command)


def _new_session_id() -> str:
    return str(MIN_SESSION + secrets.randbelow(MAX_SESSION + 1 - MIN_SESSION))


async def _stop(command: ThreadCommand) -> None:
    try:
        await command.stop()
    except OSError as exc:
        # The next load of the thread completes the item.
        logger.warning("the end of command %s cannot be written: %s", command.item.id, exc)


def _silent_since(command: ThreadCommand) -> float:
    return command.output_s


def _given(thread_id: str, call_id: str) -> dict[str, str]:
    ids = {"CODEX_THREAD_ID": thread_id, "CODEX_TOOL_CALL_ID": call_id}
    return {**PLAIN_OUTPUT, "CODEX_SESSION_ID": thread_id, **ids}
