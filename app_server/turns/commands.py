"""Commands of one loaded thread: each an item that begins, prints and ends, and all that are kept.

A command is kept while it runs, and until it has been read to its end; some go on behind the turns.
Source: docs/tools.md, "Commands".
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from secrets import token_hex

import anyio
import anyio.abc

from app_server.host.commands.local_commands import (
    CommandLaunch,
    LocalCommand,
    LocalCommands,
    TerminalSize,
)
from app_server.host.commands.output import KeptOutput, Stream, without_split_end
from app_server.host.commands.shell import shell_command
from app_server.host.environments import Environments
from app_server.host.exec.client.process import RemoteCommand
from app_server.host.exec.client.starts import CommandOrder
from app_server.host.proxy.gate import Gate
from app_server.observability.log_context import THREAD, start_apart
from app_server.permissions.environment import PLAIN_OUTPUT, CommandSettings, command_environment
from app_server.permissions.sandbox.policy import UNRESTRICTED, EffectivePolicy
from app_server.threads.log.live import LogClosed
from app_server.turns.recorder import TurnRecorder
from app_server.turns.servers import ThreadServers
from protocol.exec.processes import CommandVariables, WorkPolicy
from protocol.log.rollout import LOCAL
from protocol.turns.items import CommandExecutionOutputDeltaNotification, CommandExecutionThreadItem
from protocol.turns.policy import DangerFullAccessSandboxPolicy

logger = logging.getLogger(__name__)

MAX_DELTA_BYTES = 8 * 1024
INTERVAL_S = 0.05
"""Between two deltas of one command."""

_NOTE_BYTES = 64
"""Room for the line that says how much was left out."""


class OutputDeltas:
    """Turns the output of one command into deltas; what is too much is cut in the middle."""

    def __init__(self, recorder: TurnRecorder, item_id: str) -> None:
        self._recorder = recorder
        self._item_id = item_id
        self._loop = asyncio.get_running_loop()
        self._pending = KeptOutput(MAX_DELTA_BYTES - _NOTE_BYTES)
        self._next_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, data: bytes) -> None:
        """Take output; it is sent now, or with what comes soon."""
        self._pending.add(data)
        if self._timer is not None:
            return
        wait_s = self._next_s - self._loop.time()
        if wait_s <= 0:
            self.send()
        else:
            self._timer = self._loop.call_later(wait_s, self.send)

    def send(self, *, is_last: bool = False) -> None:
        """Send at once what waits; a character that is not whole yet only if nothing follows."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending = self._pending
        if not pending.total:
            return
        self._pending = KeptOutput(MAX_DELTA_BYTES - _NOTE_BYTES)
        if pending.lost_bytes:
            text = pending.text()
        else:
            data = pending.all()
            # A character that is not whole yet waits for its rest.
            whole = data if is_last else without_split_end(data)
            self._pending.add(data[len(whole) :])
            text = whole.decode(errors="replace")
        if text:
            self._next_s = self._loop.time() + INTERVAL_S
            self._recorder.clients.emit(
                CommandExecutionOutputDeltaNotification(
                    **self._recorder.ids, item_id=self._item_id, delta=_within(text)
                )
            )


def _within(text: str) -> str:
    """Cut what grew beyond the bound, as each byte that is no UTF-8 becomes three."""
    encoded = text.encode()
    if len(encoded) <= MAX_DELTA_BYTES:
        return text
    cut = KeptOutput(MAX_DELTA_BYTES - _NOTE_BYTES)
    cut.add(encoded)
    return cut.text()


NOT_STARTED = -1
"""The exit code of what could not be started."""

ABORTED = -1
"""The exit code of what the user interrupted."""
ABORTED_TEXT = "command aborted by user"
"""Said behind what it printed, in the words of Codex."""

MAX_NOTES = 16
"""Beside the output of a command, until the model reads it."""


def start_failure(error: OSError, folder: str) -> str:
    """Describe why a command could not be started, to clients and the model.

    `folder` is that of the thread in the command's environment. Where it is missing, the thread was
    begun on another machine, or it was removed, and no command of it can run here.
    Source: docs/scale.md, "Requests for other nodes".
    """
    reason = error.strerror or str(error) or "unknown error"
    if error.filename is None:
        return reason
    code = "environmentUnavailable: " if error.filename == folder else ""
    return f"{code}{error.filename}: {reason}"


class ThreadCommand:
    """A command of a thread, from when it has a session id to when its item is complete."""

    def __init__(
        self, item: CommandExecutionThreadItem, line: str, recorder: TurnRecorder, number: int
    ) -> None:
        """Take its place among the commands of the thread: `number` grows from each to the next."""
        self.item = item
        self.session_id = item.process_id or ""
        """Session id of the command, for the model and clients."""
        self.line = line
        """The command line for the shell."""
        self.number = number
        self.completed = anyio.Event()
        """The item is complete: in the log, and sent to clients."""
        self.is_background = False
        """The model was shown its session id."""
        self.unread = KeptOutput()
        """Output since the model last read of it."""
        self.output_s = time.monotonic()
        """Monotonic time in seconds of the last output, or of the start."""
        self.process: LocalCommand | RemoteCommand | None = None
        self.is_ordered = False
        """Its start was ordered: it may run, and print, before `process` is known."""
        self.is_cut_off = False
        """It ran when its thread was put away, and was ended for that."""
        self._notes: list[str] = []
        self.recorder = recorder
        self._output = KeptOutput()
        self._deltas = OutputDeltas(recorder, item.id)
        self._began_s = time.perf_counter()
        self._writing = anyio.Lock()
        self._is_aborted = False

    def take(self, stream: Stream, data: bytes) -> None:
        """Take output; never waits."""
        self._output.add(data)
        self.unread.add(data)
        self.output_s = time.monotonic()
        self._deltas.add(data)

    def read(self) -> KeptOutput:
        """Give what the model was not shown yet, and count it as shown."""
        unread, self.unread = self.unread, KeptOutput()
        return unread

    def note(self, text: str) -> None:
        """Keep a text that the model is shown beside the output; of too many the last are lost."""
        if len(self._notes) < MAX_NOTES:
            self._notes.append(text)

    def read_notes(self) -> list[str]:
        """Give the notes that the model was not shown yet, and count them as shown."""
        notes, self._notes = self._notes, []
        return notes

    def send_pending(self) -> None:
        """Send clients what it printed and was not sent yet, as its process has ended."""
        self._deltas.send(is_last=True)

    def again(self) -> None:
        """Forget what was printed, as it is started once more; clients have it."""
        self.process, self.is_ordered = None, False
        self._deltas.send(is_last=True)
        self._output, self.unread = KeptOutput(), KeptOutput()

    @property
    def exit_code(self) -> int | None:
        """Its exit status, or 128 and the number of a signal; None while it runs."""
        if self.item.exit_code is not None or self.process is None:
            return self.item.exit_code
        if not self.process.finished.is_set():
            return None
        status = self.process.returncode
        assert status is not None
        return 128 - status if status < 0 else status

    def so_far(self, output: KeptOutput | None = None) -> CommandExecutionThreadItem:
        """Return the item as it is now, with what was printed so far, or with `output`."""
        printed = self._output if output is None else output
        text = printed.text() if printed.total else None
        return self.item.model_copy(update={"aggregated_output": text})

    def snapshot(self, limit_bytes: int) -> CommandExecutionThreadItem:
        """Return the item with all output that clients were sent; what waited is sent first."""
        self._deltas.send()
        return self.so_far(self._output.shortened(limit_bytes))

    async def leave_running(self) -> bool:
        """Leave it running in the background; False if its process has ended meanwhile.

        Raises:
            OSError: the disk refused; it does not go on then.
        """
        async with self._writing:
            if self.exit_code is not None:
                return False
            await self.recorder.left_running(self.so_far())
            self.is_background = True
            return True

    async def complete(self, exit_code: int, output: str | None = None) -> None:
        """Complete the item, once; `output` takes the place of what was printed.

        Raises:
            OSError: the disk refused; the end is announced, and written with the next append.
        """
        # What has ended is written down, also where its turn is cut off meanwhile.
        with anyio.CancelScope(shield=True):
            async with self._writing:
                if self.completed.is_set():
                    return
                self._deltas.send(is_last=True)
                if self._is_aborted:
                    exit_code = ABORTED
                    self._say(ABORTED_TEXT)
                item = self.so_far()
                if output is not None:
                    item.aggregated_output = output
                item.status = "completed" if exit_code == 0 else "failed"
                await self._complete(item, exit_code)

    def _say(self, text: str) -> None:
        """Put a line behind what was printed, for the item and for the model."""
        for output in (self._output, self.unread):
            is_new_line = not output.total or output.all().endswith(b"\n")
            output.add((text if is_new_line else f"\n{text}").encode())

    async def decline(self) -> None:
        """Complete the item of a command that must not run, or was not to run any more.

        Raises:
            OSError: the disk refused.
        """
        with anyio.CancelScope(shield=True):
            async with self._writing:
                if self.completed.is_set():
                    return
                item = self.so_far()
                item.status = "declined"
                await self._complete(item, None)

    async def _complete(self, item: CommandExecutionThreadItem, exit_code: int | None) -> None:
        item.exit_code = exit_code
        if self.process is None:
            # Nothing ran that could be named.
            item.process_id = None
        if exit_code is not None:
            item.duration_ms = round((time.perf_counter() - self._began_s) * 1000)
        self.item = item
        try:
            if self.is_background:
                await self.recorder.completed_after_turn(item)
            else:
                await self.recorder.completed(item)
        except LogClosed:
            raise
        except OSError:
            # Its process has ended: nothing else will complete it while the thread is loaded.
            self.recorder.defer_completed(item, after_turn=self.is_background)
            raise
        finally:
            self.completed.set()

    async def follow(self) -> None:
        """Wait for the end of a command that goes on behind the turns, and complete its item."""
        assert self.process is not None
        await self.process.finished.wait()
        assert self.exit_code is not None
        try:
            await self.complete(self.exit_code)
        except OSError as exc:
            logger.warning("the end of command %s cannot be written: %s", self.item.id, exc)

    async def stop(self, exit_code: int | None = None) -> None:
        """End the process, if it was started, and complete the item, if it is not yet.

        `exit_code` takes the place of that of the process.

        Raises:
            OSError: the disk refused the item.
        """
        if self.completed.is_set():
            return
        with anyio.CancelScope(shield=True):
            if self.process is None and not self.is_ordered:
                await self.decline()
                return
            if self.process is not None:
                await self.process.stop()
            code = self.exit_code if exit_code is None else exit_code
            await self.complete(KILLED if code is None else code)

    async def abort(self) -> None:
        """End the process for the user who interrupted it, and let its item say so.

        A process that has ended by itself is left as it ended.

        Raises:
            OSError: the disk refused the item.
        """
        if self.exit_code is None:
            self._is_aborted = True
        await self.stop()


KILLED = 137
"""The exit code of what was killed and yet did not end in time."""


BYTES_PER_TOKEN = 4


def tokens_in(size_bytes: int) -> int:
    """Estimate the tokens of this many bytes."""
    return -(-size_bytes // BYTES_PER_TOKEN)


def state_line(exit_code: int | None, session_id: str) -> str:
    """Say whether a command has ended."""
    if exit_code is None:
        return f"Process running with session ID {session_id}"
    return f"Process exited with code {exit_code}"


def model_text(
    output: KeptOutput, limit_bytes: int, wall_s: float, state: str, notes: Sequence[str] = ()
) -> str:
    """Render a command for the model: how long it waited, how the command is, what it printed."""
    lines = [
        f"Chunk ID: {token_hex(3)}",
        f"Wall time: {wall_s:.4f} seconds",
        state,
        *notes,
        f"Original token count: {tokens_in(output.total)}",
        "Output:",
    ]
    return "\n".join(lines) + "\n" + cut_to(output, limit_bytes)


def cut_to(output: KeptOutput, limit_bytes: int) -> str:
    """Return output as text, cut in the middle; a line says how much is missing."""
    return output.text(limit_bytes, lambda count: f"{tokens_in(count)} tokens")


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
        self.max_count = MAX_COMMANDS
        """Commands at a time; one more ends another."""
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
        session_id = ""
        while not session_id or session_id in self._commands:
            session_id = str(MIN_SESSION + secrets.randbelow(MAX_SESSION + 1 - MIN_SESSION))
        item.process_id = session_id
        self._opened += 1
        command = ThreadCommand(item, line, recorder, self._opened)
        self._commands[session_id] = command
        return command

    async def start(
        self,
        command: ThreadCommand,
        line: ShellLine,
        sandbox_policy: EffectivePolicy = UNRESTRICTED,
        gate: Gate | None = None,
    ) -> None:
        """Make room, and start the process of a command; `gate` as LocalCommands.start has it.

        Raises:
            SandboxUnavailable, OSError: see LocalCommands.start, Environments.start_command; or
                the thread is being closed, or the disk refused the end of another command.
        """
        if self._closed:
            raise OSError(0, "the thread is being closed")
        # Somebody may have been asked for long, and another server may have the thread since.
        await command.recorder.log.require_owned()
        await self._make_room(command)
        command.is_ordered = True
        machine = self.machine
        thread_id = command.recorder.log.id
        given = {
            **PLAIN_OUTPUT,
            "CODEX_SESSION_ID": thread_id,
            "CODEX_THREAD_ID": thread_id,
            "CODEX_TOOL_CALL_ID": command.item.id,
        }
        if line.environment_id == LOCAL:
            launch = CommandLaunch(
                shell_command(line.shell, command.line, login=line.login),
                command_environment(
                    machine.settings.environment, machine.environ, machine.credentials, given
                ),
                line.cwd,
                TerminalSize() if line.tty else None,
            )
            command.process = await machine.local.start(launch, sandbox_policy, command.take, gate)
            await self._stop_if_closed(command)
            return
        order = CommandOrder(
            line=command.line,
            policy=line.policy if sandbox_policy.is_restricted else UNCONFINED_WORK,
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

    async def _make_room(self, command: ThreadCommand) -> None:
        """End the command that has been silent longest, if too many run beside the one to start.

        The model is shown which. One that the user is still asked about does not count.

        Raises:
            OSError: the disk refused the item of the one that was ended.
        """
        others = [one for one in self._commands.values() if one.is_ordered and one is not command]
        if len(others) < self.max_count:
            return
        ended = [one for one in others if one.completed.is_set()]
        if ended:
            self.forget(min(ended, key=_silent_since))
            return
        # Calls beside this one end others.
        running = [one for one in others if one.is_background and one not in self._evicted]
        if not running:
            return
        silent = min(running, key=_silent_since)
        self._evicted.add(silent)
        try:
            await silent.stop()
        finally:
            self._evicted.discard(silent)
            self.forget(silent)
        command.note(
            f"Session {silent.session_id} was ended to make room: a thread has at most "
            f"{self.max_count} commands, and it had been silent longest"
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
                command.is_cut_off = command.exit_code is None
                tasks.start_soon(_stop, command)


async def _stop(command: ThreadCommand) -> None:
    try:
        await command.stop()
    except OSError as exc:
        # It is written later, or the next load of the thread completes the item.
        logger.warning("the end of command %s cannot be written: %s", command.item.id, exc)


def _silent_since(command: ThreadCommand) -> float:
    return command.output_s
