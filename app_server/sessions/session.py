"""A loaded thread at work, joined from its parts.

Invariants: at most one turn at a time; whatever is accepted is in the log before it is answered;
every turn that began ends with one `turn/completed`, and that end is in the log first.
Source: docs/wire.md, "Turns".
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio.abc

from app_server.config.values import Config
from app_server.extensions.hooks.plugins import HookedPlugin
from app_server.extensions.hooks.source import HookSource
from app_server.mcp.catalog.config import McpSettings
from app_server.mcp.servers.server_set import ServerSet
from app_server.models.catalogue.providers import credential_variables as model_credentials
from app_server.models.catalogue.thread_model import ThreadModel
from app_server.permissions.shell.parse import ScriptReader
from app_server.sessions.goals.turns import GoalTurns
from app_server.sessions.input.client import ClientInput
from app_server.sessions.input.inbox import Inbox
from app_server.sessions.input.queue import ThreadQueue
from app_server.sessions.mcp_servers import ThreadServers
from app_server.sessions.out_of_band import OutOfBandElicitations
from app_server.sessions.ports import SessionPorts
from app_server.sessions.special_turns import CompactionStart, ReviewStart
from app_server.sessions.surroundings.instructions import ThreadInstructions
from app_server.sessions.surroundings.skills import ThreadSkills
from app_server.sessions.surroundings.surroundings import ThreadSurroundings
from app_server.sessions.turn.context import ThreadContext, thread_context
from app_server.sessions.turn.hooks import UserHooks
from app_server.sessions.turn.mentions import InputMentions
from app_server.sessions.turn.skill_servers import SkillServers
from app_server.sessions.turn.turn import ThreadTurns
from app_server.sessions.user_commands import UserCommands
from app_server.threads.log.live import LiveThread
from app_server.tools.commands.terminals import CommandPlace, Terminals
from app_server.tools.commands.user_shell import UserShell
from app_server.tools.dynamic.specs import DynamicTools
from app_server.tools.registry import ThreadTools
from app_server.turns.approval.approvals import thread_approvals
from app_server.turns.approval.asking import ThreadQuestions
from app_server.turns.approval.elicitations import Elicitations
from app_server.turns.hooks import ThreadHooks
from app_server.turns.review.asking import VerdictCalls
from app_server.turns.review.reviewer import Reviewer
from app_server.turns.session_settings import SessionSettings
from protocol.log.rollout import Record, Settings, TurnsReverted
from protocol.threads.thread import ThreadStatus


class ThreadSession:
    """One loaded thread at work."""

    def __init__(
        self,
        thread: LiveThread,
        config: Config,
        mcp: McpSettings,
        settings: SessionSettings,
        ports: SessionPorts,
        tasks: anyio.abc.TaskGroup,
    ) -> None:
        """`tasks` owns everything the thread does; `mcp` was read from `config`."""
        self.unload_delay_s: float | None = None
        """Seconds of quiet before it is unloaded; None means those of the server."""
        self.quiet_since_s: float | None = None
        """Since when nobody listens and nothing is done, in the time of the event loop."""
        self.thread = thread
        self.output_limit_bytes = settings.output_limit_bytes
        """How much of an output the model reads."""
        thread.watch(ports.log_grew)
        self._tasks = tasks
        self._plugin_switches = ports.plugin_switches
        ports.plugin_switches.switch_off(thread.id, thread.state.settings.disabled_plugin_ids)
        self._context = context = thread_context(thread, ports)
        self.slot, self.publisher, self.goals = context.slot, context.publisher, context.goals
        questions = _questions(context, settings, ports, self._hook_source(ports))
        elicitations = Elicitations(questions, lambda name: self.mcp.metadata_of(name))
        self.mcp = ThreadServers(
            thread, config, mcp, context.publisher, ports.extensions, ports.processes, elicitations
        )
        self.out_of_band = OutOfBandElicitations(self.mcp)
        self.instructions = ThreadInstructions(
            config, ports.home, ports.folder_reads, ports.environments
        )
        skills = ThreadSkills(thread.id, config, ports.skills, ports.folder_reads)
        self.surroundings = ThreadSurroundings(
            context, config, self.instructions, skills, ports.environments
        )
        self.terminals = Terminals(_place(settings, self.mcp, ports), tasks)
        turns = self._thread_turns(settings, ports, questions, skills)
        self.input = ClientInput(context, turns)
        self.inbox = Inbox(context, turns)
        self.queue = ThreadQueue(context, turns)
        self.reviews = ReviewStart(context, turns)
        shell = UserShell(self.terminals, ScriptReader(ports.grammar))
        self.user_commands = UserCommands(context, turns, self.input, shell, tasks)
        self.compaction = CompactionStart(context.slot, turns, self.wake)
        self._goal_turns = GoalTurns(context, turns)

    def _thread_turns(
        self,
        settings: SessionSettings,
        ports: SessionPorts,
        questions: ThreadQuestions,
        skills: ThreadSkills,
    ) -> ThreadTurns:
        context, timeouts = self._context, self.out_of_band.timeouts
        tools = ThreadTools(
            servers=self.servers,
            approvals=thread_approvals(
                questions,
                ports.approvals,
                ScriptReader(ports.grammar),
                ports.rules,
                context.slot.interrupt,
                timeouts,
                self.config,
            ),
            user_hooks=questions.hooks,
            terminals=self.terminals,
            hooks=context.hooks,
            contribution=self.mcp.context,
            grammar=ports.grammar,
            settings=settings,
            plugin_offers=ports.plugin_offers,
            of_clients=DynamicTools(self.thread.state.created.dynamic_tools or ()),
        )
        mentions = InputMentions(
            context=context,
            servers=self.mcp,
            skills=skills,
            plugins=ports.plugin_mentions,
            reads_server_skills=settings.reads_server_skills,
        )
        install = ports.install_servers if settings.installs_skill_servers else None
        lists, warn = ports.model_lists, self.publisher.warning
        return ThreadTurns(
            context=context,
            tools=tools,
            servers=self.mcp,
            surroundings=self.surroundings,
            mentions=mentions,
            skill_servers=SkillServers(context, self.mcp, install),
            user_hooks=UserHooks(context, questions.hooks),
            questions=questions,
            model=ThreadModel(self.thread, settings.model, lists, warn),
            port=ports.model,
            settings=settings,
            timeouts=timeouts,
            metrics=ports.metrics,
            plugin_switches=ports.plugin_switches,
            tasks=self._tasks,
            go_on=self._go_on,
        )

    def _hook_source(self, ports: SessionPorts) -> HookSource:
        def of_plugins(settings: Mapping[str, Any]) -> Sequence[HookedPlugin]:
            return ports.hooked_plugins(settings, self.thread.id)

        return HookSource(lambda: self.config, ports.home, ports.folder_reads, of_plugins)

    @property
    def status(self) -> ThreadStatus:
        """The thread's status, as the wire has it."""
        return self._context.status.current

    @property
    def servers(self) -> ServerSet:
        """The connections to the thread's servers."""
        return self.mcp.set

    @property
    def config(self) -> Config:
        """The settings in force, as of the start of the thread or the last reload."""
        return self.mcp.config

    @property
    def works_on(self) -> bool:
        """Whether anything goes on behind the turns: a command, or a request to an MCP server."""
        if next(self.terminals.background(), None) is not None:
            return True
        return self.servers.is_in_use

    # Going on.

    def resumed(self) -> None:
        """Notify a client that has come of the queue, and go on with what waits."""
        if self.queue.state.entries:
            self.publisher.queue_changed()
        self.wake()

    def wake(self) -> None:
        """Go on with what waits, if the thread is idle; never waits itself."""
        self._tasks.start_soon(self._go_on)

    def wake_goal(self) -> None:
        """Let the thread go on with its goal if it is idle; never waits."""
        self._tasks.start_soon(self._goal_turns.go_on)

    async def _go_on(self) -> None:
        """Begin what waits for the thread to be idle: a compaction, queued input, or a goal."""
        if not await self.compaction.go_on():
            await self.queue.go_on()
            await self._goal_turns.go_on()

    # Changes.

    def change_turn_settings(self, turn_id: str, change: Callable[[Settings], Settings]) -> bool:
        """Change the settings of the running turn alone; False if it is another, or none."""
        if turn_id != self.slot.active_turn_id:
            return False
        self.thread.state.turn_settings = change(self.thread.state.in_force)
        return True

    async def revert(self, before_turn_id: str) -> None:
        """Drop a turn and all after it; a running turn is interrupted first.

        When this returns, that is on disk.

        Raises:
            SessionClosed
            OSError: the disk refused; nothing was dropped.
        """
        async with self.slot.emptied():
            record = TurnsReverted(
                at_ms=self._context.clock.now_ms(), before_turn_id=before_turn_id
            )
            await self.thread.revert(record)

    async def close(self, *last: Record) -> bool:
        """Accept nothing more, stop the running turn and the servers, and wait for their ends.

        `last` goes into the log first. False if nothing was accepted any more before; then it is
        not written.

        Raises:
            OSError: the disk refused `last`; the thread goes on as before.
        """
        async with self.slot.exclusive():
            was_open = not self.slot.closed
            if was_open and last:
                await self.thread.append(*last)
            self.slot.closed = True
        self.slot.cancel()
        await self.slot.idle.wait()
        await self.terminals.aclose()
        self.servers.stop()
        self._plugin_switches.switch_off(self.thread.id, ())
        return was_open


def _questions(
    context: ThreadContext, settings: SessionSettings, ports: SessionPorts, source: HookSource
) -> ThreadQuestions:
    thread, clients, clock = context.thread, context.clients, context.clock
    stop = context.slot.stop_denied_turn
    calls = VerdictCalls(thread, ports.model, settings.model.providers)
    transcript = ports.store.shown_path(thread.id)
    return ThreadQuestions(
        thread=thread,
        clients=clients,
        reviewer=Reviewer(stop, thread, calls, clients, clock),
        clock=clock,
        waiting=context.status.waiting_on_approval,
        timeout_s=settings.approval_timeout_s,
        hooks=ThreadHooks(thread, source, transcript, ports.hook_runner, clients, clock),
    )


def _place(settings: SessionSettings, mcp: ThreadServers, ports: SessionPorts) -> CommandPlace:
    of_models = model_credentials(settings.model.providers.values())
    return CommandPlace(
        machine=ports.commands,
        settings=settings.commands,
        places=settings.places,
        credentials=lambda: ports.credentials | of_models | mcp.credential_variables(),
        environ=os.environ,
        environments=ports.environments,
    )
