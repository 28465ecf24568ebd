"""A loaded thread at work: its turns one after the other, its MCP servers, its status.

Invariants: at most one turn at a time; whatever is accepted is in the log before anybody is told;
every turn that began ends with one `turn/completed`, and that end is in the log first.
Source: docs/wire.md, "Turns".
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import anyio
import anyio.abc

from app_server.config.requirements import Requirements, requirements_of
from app_server.config.values import Config, ConfigError
from app_server.extension.registry import ExtensionRegistry
from app_server.mcp.catalog.config import McpSettings
from app_server.mcp.connections import ServerSet
from app_server.mcp.processes import Processes
from app_server.runtime.clock import Clock
from app_server.sessions.compaction_start import CompactionStart
from app_server.sessions.errors import (
    NoActiveTurn,
    NotSteerable,
    SessionClosed,
    SessionPutAway,
    TurnIdMismatch,
)
from app_server.sessions.goals import GoalKeeper
from app_server.sessions.idempotency import name_records, turn_that_took
from app_server.sessions.inbox import OutsideInput
from app_server.sessions.managed_policy import with_required
from app_server.sessions.mcp_servers import ThreadServers
from app_server.sessions.publisher import Announcer, TurnEnd
from app_server.sessions.queue import ThreadQueue
from app_server.sessions.turn_records import end_of_turn, start_of_compaction, start_of_turn
from app_server.threads.log.live import LiveThread
from app_server.threads.log.state import ThreadState
from app_server.threads.store import ThreadStore
from app_server.turns.approval.approvals import ApprovalGate
from app_server.turns.approval.elicitations import ElicitationGate
from app_server.turns.model.interface import Model, ModelFailure
from app_server.turns.model.prompt import STOPPED_BY_REVIEWER, message
from app_server.turns.model.user_input import TurnInput
from app_server.turns.ports import ApprovalRecords, ClientPort
from app_server.turns.recorder import TurnRecorder
from app_server.turns.review.reviewer import Reviewer
from app_server.turns.run import SessionSettings, TurnOptions, TurnRun
from app_server.turns.tools.metadata import turn_metadata
from app_server.turns.tools.router import ToolRouter, TurnTools
from protocol.items import UserMessageThreadItem
from protocol.model import JsonObject
from protocol.rollout import (
    HistoryAppended,
    InputQueued,
    InputTaken,
    Record,
    Settings,
    SubmissionQueued,
    TurnsReverted,
    TurnStarted,
)
from protocol.threads import (
    ActiveThreadStatus,
    IdleThreadStatus,
    SystemErrorThreadStatus,
    ThreadActiveFlag,
    ThreadStatus,
)
from protocol.turns import (
    McpMetaByServer,
    TokenUsageBreakdown,
    TurnError,
)

logger = logging.getLogger(__name__)

WRITE_END_S = 10.0
"""For writing the end of a turn that was cancelled."""


def _unheard(state: ThreadState) -> None:
    pass


async def _no_demands() -> Requirements:
    return requirements_of(Config({}))


@dataclass(frozen=True, slots=True)
class SessionPorts:
    """What all sessions share."""

    store: ThreadStore
    model: Model
    clients: ClientPort
    clock: Clock
    approvals: ApprovalRecords
    processes: Processes
    extensions: ExtensionRegistry = field(default_factory=ExtensionRegistry)
    log_grew: Callable[[ThreadState], None] = _unheard
    """Hears of every append to a loaded thread's log; never waits."""
    requirements: Callable[[], Awaitable[Requirements]] = _no_demands
    """What an administrator demands of turns that no request begins."""


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
        self.thread = thread
        thread.watch(ports.log_grew)
        self.announcer = Announcer(thread, ports.clients, ports.clock)
        self._hooks = ports.extensions.hooks
        reviewer = Reviewer(
            self, thread, ports.model, settings.providers, ports.clients, ports.clock
        )
        self._elicitations = ElicitationGate(
            thread,
            ports.clients,
            self._shown_as_waiting,
            reviewer,
            lambda name: self.mcp.metadata_of(name),
        )
        self.mcp = ThreadServers(
            thread,
            config,
            mcp,
            self.announcer,
            ports.extensions,
            ports.processes,
            self._elicitations,
        )
        self._model = ports.model
        self._clients = ports.clients
        self._clock = ports.clock
        self._tasks = tasks
        self._requirements = ports.requirements
        self._settings = settings
        self._approvals = ApprovalGate(ports.clients, ports.approvals, reviewer)
        self.goals = GoalKeeper(thread, ports.clients, ports.clock)
        self._accepting = anyio.Lock()
        self._beginning = anyio.Lock()
        """Held, before `_accepting`, to begin turns: whoever has it keeps an idle thread idle."""
        self.compaction = CompactionStart(self)
        self.outside = OutsideInput(self, thread, ports.clock)
        self.queue = ThreadQueue(self, thread, self.announcer, ports.requirements)
        self._run: TurnRun | None = None
        self._closed = False
        self._draining = False
        self._broken = False
        self.untold_turn_id: str | None = None
        """The turn that was accepted and that no client has been told of yet."""
        self._waiting_on_approval = 0
        self.idle = anyio.Event()
        """Set while no turn runs."""
        self.idle.set()

    # Status.

    @property
    def status(self) -> ThreadStatus:
        """The thread's status, as the wire has it."""
        if self._run is not None:
            flags: list[ThreadActiveFlag] = []
            if self._waiting_on_approval:
                flags.append("waitingOnApproval")
            return ActiveThreadStatus(active_flags=flags)
        return SystemErrorThreadStatus() if self._broken else IdleThreadStatus()

    @property
    def run(self) -> TurnRun | None:
        """The running turn, if there is one."""
        return self._run

    @property
    def active_turn_id(self) -> str | None:
        """The running turn, if there is one."""
        return None if self._run is None else self._run.id

    @property
    def is_asking(self) -> bool:
        """Whether a model is being asked at this moment."""
        return self._run is not None and self._run.is_asking

    def _tell_status(self) -> None:
        self.announcer.status(self.status)

    @contextmanager
    def _shown_as_waiting(self) -> Iterator[None]:
        self._waiting_on_approval += 1
        if self._run is not None:
            self._run.user_was_asked = True
            self._tell_status()
        try:
            yield
        finally:
            self._waiting_on_approval -= 1
            if self._run is not None and not self._run.scope.cancel_called:
                self._tell_status()

    # MCP servers.

    @property
    def servers(self) -> ServerSet:
        """The connections to the thread's servers."""
        return self.mcp.set

    @property
    def config(self) -> Config:
        """The settings in force, as of the start of the thread or the last reload."""
        return self.mcp.config

    async def wait_for_servers(self) -> None:
        """Bring the MCP servers up to date before a model request."""
        await self.mcp.before_request()

    # Input.

    async def start_turn(
        self, user_input: TurnInput, settings: Settings, options: TurnOptions
    ) -> tuple[str, Callable[[], None]]:
        """Accept input: for a new turn, or for the one that runs.

        When this returns, the input is on disk. Gives the id of the turn and what lets it begin;
        that must be called, once the caller has been answered. The same input again gives the turn
        that took it.

        Raises:
            InputIdTaken: another input has the same name.
            SessionClosed: nothing is accepted any more.
            OSError: the disk refused; nothing was accepted.
        """
        async with self._beginning, self._accepting:
            self._require_open()
            name = user_input.client_id, user_input.digest
            if (taken_by := turn_that_took(self.thread.state, *name)) is not None:
                return taken_by, _nothing
            if self._run is not None:
                await self._queue(user_input, options.mcp_meta)
                return self._run.id, _nothing
            if self._draining:
                raise SessionClosed
            return await self.accept(user_input, settings, options)

    async def accept(
        self,
        user_input: TurnInput,
        settings: Settings,
        options: TurnOptions,
        submission: SubmissionQueued | None = None,
    ) -> tuple[str, Callable[[], None]]:
        """Begin a turn in the log; `submission` leaves the queue in the same write.

        To be called while turns may begin and no turn running.

        Raises:
            OSError: the disk refused; nothing was accepted.
        """
        turn_id, at_ms = self._clock.new_id(), self._clock.now_ms()
        user_message = self._user_message(user_input, at_ms)
        await self.thread.append(
            *start_of_turn(
                self.thread.state,
                TurnStarted(at_ms=at_ms, turn_id=turn_id),
                settings,
                user_message,
                user_input.items,
                submission,
                user_input.signals,
                name_records(user_input.client_id, user_input.digest, turn_id, at_ms),
            )
        )
        begin = self._begins(self._make_run(turn_id, options), user_message)
        self._hooks.input_taken(self.thread.id, turn_id, user_input.content)
        return turn_id, begin

    async def accept_compaction(self) -> Callable[[], None]:
        """Begin a turn that compacts, in the log, while turns may begin and none runs.

        Raises:
            OSError: the disk refused; nothing was begun.
        """
        turn_id = self._clock.new_id()
        started = TurnStarted(at_ms=self._clock.now_ms(), turn_id=turn_id)
        await self.thread.append(*start_of_compaction(self.thread.state, started))
        return self._begins(self._make_run(turn_id, TurnOptions(), compacts=True), None)

    def _begins(
        self, run: TurnRun, user_message: UserMessageThreadItem | None
    ) -> Callable[[], None]:
        self._run = run
        self.untold_turn_id = run.id
        settings = self.thread.state.settings
        if (tier := run.options.service_tier) is not None:
            settings = settings.model_copy(update={"service_tier": tier})
        self.thread.state.turn_settings = settings
        self.goals.turn_begins()
        self.idle = anyio.Event()

        def begin() -> None:
            self._tasks.start_soon(self._run_turn, run, user_message)

        return begin

    async def _go_on(self) -> None:
        """Begin what waits for the thread to be idle: a compaction, queued input, or a goal."""
        if not await self.compaction.go_on():
            await self.queue.go_on()
            await self.pursue_goal()

    def _user_message(self, user_input: TurnInput, at_ms: int) -> UserMessageThreadItem | None:
        if not user_input.content:
            return None
        return UserMessageThreadItem(
            id=self._clock.new_id(),
            client_id=user_input.client_id,
            content=list(user_input.content),
            started_at_ms=at_ms,
            completed_at_ms=at_ms,
        )

    def _make_run(self, turn_id: str, options: TurnOptions, *, compacts: bool = False) -> TurnRun:
        recorder = TurnRecorder(self.thread, turn_id, self._clients, self._clock)
        tools = TurnTools(
            servers=self.servers,
            approvals=self._approvals,
            recorder=recorder,
            waiting_on_approval=self._shown_as_waiting,
            mcp_meta=options.mcp_meta,
            turn_metadata=self._turn_metadata,
            output_limit_bytes=self._settings.output_limit_bytes,
            hooks=self._hooks,
            functions=self.goals,
            context=self.mcp.context,
        )
        return TurnRun(
            self,
            recorder,
            self._model,
            ToolRouter(tools),
            options,
            self._settings,
            compacts=compacts,
        )

    def _turn_metadata(self) -> JsonObject:
        assert self._run is not None, "only a turn makes calls"
        options = self._run.options
        return turn_metadata(
            self.thread.state,
            user_was_asked=self._run.user_was_asked,
            trigger=options.trigger,
            parent_turn_id=options.parent_turn_id,
        )

    async def steer(
        self,
        expected_turn_id: str,
        user_input: TurnInput,
        mcp_meta: McpMetaByServer,
        client_metadata: Callable[[dict[str, str] | None], dict[str, str] | None],
    ) -> None:
        """Give the running turn more input; when this returns, it is on disk.

        `client_metadata` makes the entries from then on of those so far.

        Raises:
            NoActiveTurn, TurnIdMismatch, NotSteerable, SessionClosed
            OSError: the disk refused; nothing was accepted.
        """
        async with self._accepting:
            self._require_open()
            if self._run is not None and expected_turn_id != self._run.id:
                raise TurnIdMismatch(expected_turn_id, self._run.id)
            run = self.require_active(expected_turn_id)
            if run.is_compaction:
                raise NotSteerable("compact")
            await self._queue(user_input, mcp_meta)
            run.options.client_metadata = client_metadata(run.options.client_metadata)

    async def _queue(self, user_input: TurnInput, mcp_meta: McpMetaByServer) -> None:
        assert self._run is not None
        at_ms = self._clock.now_ms()
        records = name_records(user_input.client_id, user_input.digest, self._run.id, at_ms)
        if user_input.items:
            records.append(
                InputQueued(
                    at_ms=at_ms,
                    input_id=self._clock.new_id(),
                    items=list(user_input.items),
                    message=self._user_message(user_input, at_ms),
                )
            )
        if records:
            await self.thread.append(*records)
        self._hooks.input_taken(self.thread.id, self._run.id, user_input.content)
        self._run.options.mcp_meta.update(mcp_meta)

    async def inject(self, items: Sequence[JsonObject]) -> None:
        """Append raw items to what the model sees; when this returns, they are on disk.

        Raises:
            SessionClosed
            OSError: the disk refused; nothing was appended.
        """
        async with self._accepting:
            self._require_open()
            at_ms = self._clock.now_ms()
            if self._run is None:
                record: Record = HistoryAppended(at_ms=at_ms, items=list(items))
            else:
                # The model may be in the middle of an answer: behind it, not inside it.
                record = InputQueued(at_ms=at_ms, input_id=self._clock.new_id(), items=list(items))
            await self.thread.append(record)

    def require_active(self, turn_id: str) -> TurnRun:
        """Return the running turn if it is the one that is meant; "" means any.

        Raises:
            NoActiveTurn, TurnIdMismatch
        """
        if self._run is None:
            raise NoActiveTurn
        if turn_id not in ("", self._run.id):
            raise TurnIdMismatch(turn_id, self._run.id)
        return self._run

    def interrupt(self, turn_id: str) -> None:
        """Stop the running turn; its end arrives as `turn/completed`.

        Raises:
            NoActiveTurn, TurnIdMismatch
        """
        run = self.require_active(turn_id)
        run.pauses_queue = True
        run.scope.cancel()

    def stop_denied_turn(self, turn_id: str) -> None:
        """Interrupt the running turn for the reviewer, if it is the one that is meant."""
        if self._run is not None and self._run.id == turn_id:
            self._run.interruption = STOPPED_BY_REVIEWER
            self._run.pauses_queue = True
            self._run.scope.cancel()

    async def revert(self, before_turn_id: str) -> None:
        """Drop a turn and all after it; a running turn is interrupted first.

        When this returns, that is on disk.

        Raises:
            SessionClosed
            OSError: the disk refused; nothing was dropped.
        """
        async with self._beginning:
            if self._run is not None:
                self._run.scope.cancel()
            await self.idle.wait()
            async with self._accepting:
                self._require_open()
                record = TurnsReverted(at_ms=self._clock.now_ms(), before_turn_id=before_turn_id)
                await self.thread.revert(record)

    # The running turn.

    async def take_queued(self) -> None:
        """Make queued input visible to the model and announce it."""
        if not self.thread.state.queued:
            return
        async with self._accepting:
            queued = list(self.thread.state.queued)
            await self.thread.append(InputTaken(at_ms=self._clock.now_ms()), sync=False)
        assert self._run is not None
        for entry in queued:
            if entry.message is not None:
                self.announcer.user_message(self._run.id, entry.message)

    async def spend(self, turn_id: str, usage: TokenUsageBreakdown | None) -> None:
        """Count what a response has cost towards the thread's goal."""
        await self.goals.spend(turn_id, usage)

    def change_turn_settings(self, turn_id: str, change: Callable[[Settings], Settings]) -> bool:
        """Change the settings of the running turn alone; False if it is another, or none."""
        if self._run is None or self._run.id != turn_id:
            return False
        self.thread.state.turn_settings = change(self.thread.state.in_force)
        return True

    def wake_goal(self) -> None:
        """Let the thread go on with its goal if it is idle; never waits."""
        self._tasks.start_soon(self.pursue_goal)

    async def pursue_goal(self) -> None:
        """Begin a turn by itself if the thread is idle and its goal wants one."""
        async with self._beginning, self._accepting:
            if self._closed or self._draining or self._run is not None:
                return
            try:
                instruction = await self.goals.next_instruction()
                if instruction is None:
                    return
                turn_input = TurnInput((), [message("developer", instruction)])
                settings, _ = with_required(self.thread.state.settings, await self._requirements())
                _, begin = await self.accept(turn_input, settings, TurnOptions())
            except (OSError, ConfigError):
                logger.exception("thread %s cannot go on with its goal", self.thread.id)
                return
        begin()

    async def finish_if_idle(self, run: TurnRun) -> bool:
        """Complete the turn unless input is queued that it has to go on for."""
        async with self._accepting:
            queued = self.thread.state.queued
            if any(entry.message is not None or entry.steers for entry in queued):
                return False
            await self._end_turn(run, "completed", None)
            return True

    async def _run_turn(self, run: TurnRun, user_message: UserMessageThreadItem | None) -> None:
        self.untold_turn_id = None
        self._tell_status()
        self.announcer.turn_started(run.id, run.started_at_ms)
        if user_message is not None:
            self.announcer.user_message(run.id, user_message)
        failure: TurnError | None = None
        try:
            with run.scope:
                await run.loop()
        except ModelFailure as exc:
            failure = TurnError(message=exc.message, codex_error_info=exc.info)
        except OSError as exc:
            failure = self.announcer.failure(run.id, f"the log cannot be written: {exc.strerror}")
        except Exception:
            logger.exception("turn %s failed", run.id)
            failure = self.announcer.failure(run.id, "internal error")
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(WRITE_END_S):
                async with self._accepting:
                    if self._run is run:
                        await self._end_turn(
                            run, "interrupted" if failure is None else "failed", failure
                        )
        await self._go_on()

    async def _end_turn(self, run: TurnRun, end: TurnEnd, error: TurnError | None) -> None:
        at_ms = self._clock.now_ms()
        records = end_of_turn(
            self.thread.state,
            run.id,
            at_ms,
            run.started_at_ms,
            end,
            error,
            run.interruption,
            pauses_queue=run.pauses_queue,
        )
        left = list(self.thread.state.queued)
        marks: Sequence[Record] = ()
        try:
            marks = await self.thread.change(
                lambda state: [*records, *self.goals.marks_of_end(state, run.id, end, error)]
            )
        except OSError:
            logger.exception("the end of turn %s cannot be written", run.id)
            self.thread.owe(*records)
            self._broken = True
        turn = self.thread.state.turns[-1]
        for entry in left:
            if entry.message is not None:
                self.announcer.user_message(run.id, entry.message)
        self._run = None
        self.thread.state.turn_settings = None
        self.goals.tell(run.id, marks)
        self._tell_status()
        self.announcer.turn_completed(turn, end, error, run.last_message)
        self.thread.open_items.clear()
        self._elicitations.turn_over(run.id)
        self._hooks.turn_ended(self.thread.id, run.id)
        self.idle.set()

    # Closing.

    @property
    def closed(self) -> bool:
        """Whether the thread is leaving memory."""
        return self._closed

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """Let nothing else be accepted, and no turn end, while the context lasts.

        Raises:
            SessionClosed: nothing is accepted any more.
        """
        async with self._accepting:
            self._require_open()
            yield

    @asynccontextmanager
    async def beginning(self) -> AsyncIterator[None]:
        """Let no turn begin or end elsewhere while the context lasts.

        Raises:
            SessionClosed: no turn begins any more.
        """
        async with self._beginning, self._accepting:
            self._require_open()
            if self._draining:
                raise SessionClosed
            yield

    def _require_open(self) -> None:
        if self._closed:
            raise SessionClosed if self._draining else SessionPutAway

    def resumed(self) -> None:
        """Tell a client that has come of the queue, and go on with what waits."""
        if self.queue.state.entries:
            self.announcer.queue_changed()
        self.wake()

    def wake(self) -> None:
        """Go on with what waits, if the thread is idle; never waits itself."""
        self._tasks.start_soon(self._go_on)

    def drain(self) -> None:
        """Begin no more turns; the running one goes on."""
        self._draining = True

    async def close(self, *last: Record) -> bool:
        """Accept nothing more, stop the running turn and the servers, and wait for their ends.

        `last` goes into the log first. False if nothing was accepted any more before; then it is
        not written.

        Raises:
            OSError: the disk refused `last`; the thread goes on as before.
        """
        async with self._accepting:
            was_open = not self._closed
            if was_open and last:
                await self.thread.append(*last)
            self._closed = True
        if self._run is not None:
            self._run.scope.cancel()
        await self.idle.wait()
        self.servers.stop()
        return was_open


def _nothing() -> None:
    pass
