"""A loaded thread at work: what a client can ask of it.

Invariants: at most one turn at a time; whatever is accepted is in the log before it is answered;
every turn that began ends with one `turn/completed`, and that end is in the log first, unless the
disk refuses it.
Source: docs/wire.md, "Turns".
"""

import anyio.abc

from app_server.config.values import Config
from app_server.mcp.catalog.config import McpSettings
from app_server.sessions.environment_messages import (
    EnvironmentMessages,
    ThreadInstructions,
    ThreadSkills,
)
from app_server.sessions.input import ClientInput, SignalInbox, ThreadQueue
from app_server.sessions.mentions import InputMentions, SkillServers
from app_server.sessions.out_of_band import OutOfBandElicitations
from app_server.sessions.settings import Overrides, with_overrides
from app_server.sessions.turn import ThreadTurns
from app_server.sessions.user_commands import UserCommands
from app_server.threads.log.live import LiveThread
from app_server.turns.context import thread_context
from app_server.turns.server_context import ServerContext
from app_server.turns.session_settings import SessionSettings
from protocol.log.rollout import Record, TurnsReverted
from protocol.threads.thread import ThreadStatus


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
