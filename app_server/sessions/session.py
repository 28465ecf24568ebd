"""A loaded thread at work: what a client can ask of it.

Invariants: at most one turn at a time; whatever is accepted is in the log before it is answered;
every turn that began ends with one `turn/completed`, and that end is in the log first, unless the
disk refuses it.
Commands of the user run in a turn of their own, or beside the one that runs.
Source: docs/wire.md, "Turns"; docs/tools.md, "Commands of the user".
"""

import logging
from contextlib import suppress
from dataclasses import dataclass

import anyio
import anyio.abc

from app_server.config.values import Config
from app_server.mcp.catalog.config import McpSettings
from app_server.observability.log_context import start_apart
from app_server.sessions.environment_messages import (
    EnvironmentMessages,
    ThreadInstructions,
    ThreadSkills,
)
from app_server.sessions.input import ClientInput, SignalInbox, ThreadQueue
from app_server.sessions.mentions import InputMentions, SkillServers
from app_server.sessions.out_of_band import OutOfBandElicitations
from app_server.sessions.settings import Overrides, with_overrides
from app_server.sessions.turn import ThreadTurns, Turn
from app_server.sessions.user_shell import (
    PreparedCommand,
    UserCommand,
    UserShell,
    end_command,
)
from app_server.threads.log.live import LiveThread
from app_server.tools.environments import NoEnvironment
from app_server.turns.commands import ThreadCommand
from app_server.turns.context import ThreadContext, thread_context
from app_server.turns.recorder import TurnRecorder
from app_server.turns.server_context import ServerContext
from app_server.turns.session_settings import SessionSettings
from app_server.turns.slot import RunningTurn, SessionClosed, SessionUnloading
from protocol.log.rollout import Record, TurnsReverted
from protocol.model import JsonObject
from protocol.threads.thread import ThreadStatus

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


class ThreadSession:
    """One loaded thread at work."""

    def __init__(
        self,
        log: LiveThread,
        config: Config,
        mcp: McpSettings,
        settings: SessionSettings,
        server: ServerContext,
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        """Serve a thread that has just been loaded; see `thread_context`."""
        context = thread_context(log, config, mcp, settings, server, tasks)
        self.context = context
        self.log, self.slot, self.clients = context.log, context.slot, context.clients
        self.servers, self.goals, self.commands = context.servers, context.goals, context.commands
        self.unload_delay_s: float | None = None
        """Seconds of quiet before it is unloaded; None means those of the server."""
        self.quiet_since_s: float | None = None
        """Event loop time in seconds since which no client is subscribed and nothing runs."""
        self.instructions = ThreadInstructions(config, server)
        skills = ThreadSkills(context.log.id, config, server.skills, server.folder_reads)
        self.environment = EnvironmentMessages(context, self.instructions, skills)
        self.turns = ThreadTurns(
            context=context,
            environment=self.environment,
            mentions=InputMentions(context=context, skills=skills),
            skill_servers=SkillServers(context),
        )
        self.input = ClientInput(context, self.turns)
        self.inbox = SignalInbox(context, self.turns)
        self.queue = ThreadQueue(context, self.turns)
        self.user_commands = UserCommands(context, self.turns, self.input)
        self.out_of_band = OutOfBandElicitations(context)
        server.plugins.installed.switch_off(
            context.log.id, context.log.state.settings.disabled_plugin_ids
        )

    @property
    def status(self) -> ThreadStatus:
        """The thread's status, as the wire has it."""
        return self.context.status.current

    @property
    def output_limit_bytes(self) -> int:
        """Bytes of an output that the model reads."""
        return self.context.settings.output_limit_bytes

    @property
    def works_on(self) -> bool:
        """Whether anything goes on behind the turns: a command, or a request to an MCP server."""
        if next(self.commands.background(), None) is not None:
            return True
        return self.servers.live().is_in_use

    # Going on.

    def resumed(self) -> None:
        """Notify a client that has come of the queue, and begin what waits."""
        if self.queue.state.entries:
            self.clients.queue_changed()
        self.run_next_soon()

    def run_next_soon(self) -> None:
        """Begin what waits, if the thread is idle; never waits itself."""
        self.turns.run_next_soon()

    # Changes.

    def override_turn_settings(
        self, turn_id: str, overrides: Overrides, *, clears_tier: bool
    ) -> bool:
        """Change the settings of the running turn alone; False if it is another, or none."""
        if turn_id != self.slot.active_turn_id:
            return False
        changed = with_overrides(self.log.state.in_force, overrides, Config({}).view())
        if clears_tier:
            changed = changed.model_copy(update={"service_tier": None})
        self.log.state.turn_settings = changed
        return True

    async def revert(self, before_turn_id: str) -> None:
        """Drop a turn and all after it; a running turn is interrupted first.

        When this returns, that is on disk.

        Raises:
            SessionClosed
            OSError: the disk refused; nothing was dropped.
        """
        async with self.slot.emptied():
            at_ms = self.context.clock.now_ms()
            await self.log.revert(TurnsReverted(at_ms=at_ms, before_turn_id=before_turn_id))

    async def close(self, *last: Record) -> bool:
        """Accept nothing more, stop the running turn and the servers, and wait for their ends.

        `last` goes into the log first. False if nothing was accepted any more before; then it is
        not written.

        Raises:
            OSError: the disk refused `last`; the thread goes on as before.
        """
        async with self.slot.exclusive:
            was_open = not self.slot.closed
            if was_open and last:
                await self.log.append(*last)
            self.slot.closed = True
        self.slot.cancel()
        await self.slot.idle.wait()
        await self.commands.aclose()
        self.servers.live().stop()
        self.context.server.plugins.installed.switch_off(self.log.id, ())
        return was_open
