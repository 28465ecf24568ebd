"""A turn, from the record that begins it to the record that ends it.

It is written to the thread's log and put into the thread's slot, then it runs: it takes the input
that was queued, asks the model, makes the calls that the model wants, until it wants none and
nothing is queued. A turn is owned by its thread; clients come and go.
Source: docs/wire.md, "Turns".
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

import anyio
import anyio.abc

from app_server.extensions.contract.plugins import PluginSwitches
from app_server.extensions.skills.dependencies import NeededServer
from app_server.models.catalogue.thread_model import ThreadModel
from app_server.models.interface import Model, ModelFailure, kind_of
from app_server.models.prompt.user_input import TurnInput
from app_server.observability.logs.context import REQUEST, THREAD, TURN
from app_server.observability.telemetry.metrics import ServerMetrics
from app_server.observability.telemetry.spans import span, without_span
from app_server.runtime.pausable_timeouts import PausableTimeouts
from app_server.sessions.goals.tool import GoalTool
from app_server.sessions.mcp_servers import ThreadServers
from app_server.sessions.publisher import TurnEnd
from app_server.sessions.settings import of_turn
from app_server.sessions.surroundings.surroundings import ThreadSurroundings
from app_server.sessions.turn.context import ThreadContext
from app_server.sessions.turn.hooks import UserHooks
from app_server.sessions.turn.mentions import InputMentions
from app_server.sessions.turn.records import end_of_turn, start_of_turn, user_message_item
from app_server.sessions.turn.skill_servers import SkillServers
from app_server.tools.registry import ThreadTools, review_table, tool_table
from app_server.turns.approval.asking import ThreadQuestions
from app_server.turns.code_review.recorder import ReviewRecorder
from app_server.turns.code_review.run import CodeReview
from app_server.turns.model_loop import ModelLoop, TurnOptions
from app_server.turns.named_by_input import NOTHING_NAMED, NamedByInput
from app_server.turns.recorder import TurnRecorder
from app_server.turns.running_turn import RunningTurn, TurnKind
from app_server.turns.session_settings import SessionSettings
from app_server.turns.tools.metadata import turn_metadata
from app_server.turns.tools.table import ToolTable
from app_server.turns.tools.turn import TurnContext
from protocol.log.rollout import (
    InputTaken,
    QueuePaused,
    Record,
    Settings,
    SubmissionQueued,
    TurnStarted,
)
from protocol.model import JsonObject
from protocol.turns.code_review import ReviewTarget
from protocol.turns.items import UserMessageThreadItem
from protocol.turns.turn import TurnError

logger = logging.getLogger(__name__)

MAX_REQUESTS = 500
"""Model calls of one turn; a model that never stops calling tools is stopped here."""

WRITE_END_S = 10.0
"""For writing the end of a turn that was cancelled."""


# The work of a turn: what it does first, before it asks the thread's model.


@dataclass(frozen=True, slots=True)
class InputWork:
    """Input, of a user, a client or the server itself."""

    user_input: TurnInput
    settings: Settings
    """Of the thread, from this turn on."""
    submission: SubmissionQueued | None = None
    """Leaves the queue in the write that begins the turn."""


@dataclass(frozen=True, slots=True)
class CompactionWork:
    """A compaction of the whole history."""


@dataclass(frozen=True, slots=True)
class ReviewWork:
    """A review of code."""

    target: ReviewTarget
    settings: Settings
    """Of the review (`of_review`)."""


@dataclass(frozen=True, slots=True)
class CommandWork:
    """A command of the user; the model is asked nothing."""

    run: Callable[[RunningTurn], Awaitable[None]]
    """Runs the command in its turn."""


TurnWork: TypeAlias = InputWork | CompactionWork | ReviewWork | CommandWork


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenInput:
    """The input that begins a turn, as it was written to the log."""

    message: UserMessageThreadItem | None = None
    """What clients see of it."""
    items: Sequence[JsonObject] = ()
    """What the model is sent of it."""
    needed_servers: Sequence[NeededServer] = ()
    """MCP servers that its skills need."""
    named: NamedByInput = NOTHING_NAMED


def already_begun() -> None:
    """Let nothing run: the turn that took the input was begun by another request."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadTurns:
    """Begins the turns of one loaded thread, and has what they share."""

    context: ThreadContext
    tools: ThreadTools
    servers: ThreadServers
    surroundings: ThreadSurroundings
    mentions: InputMentions
    skill_servers: SkillServers
    user_hooks: UserHooks
    questions: ThreadQuestions
    model: ThreadModel
    port: Model
    settings: SessionSettings
    timeouts: PausableTimeouts
    """For how long commands are waited for."""
    metrics: ServerMetrics
    plugin_switches: PluginSwitches
    tasks: anyio.abc.TaskGroup
    """Owns the turns."""
    go_on: Callable[[], Awaitable[None]]
    """Begins what waited for the end of a turn."""

    async def begin(self, work: TurnWork, options: TurnOptions | None = None) -> "Turn":
        """Write the start of a turn and put it into the slot; `Turn.run_soon` lets it run.

        To be called under `TurnSlot.reserve`, while the thread is idle.

        Raises:
            OSError: the disk refused; nothing was begun.
        """
        context, options = self.context, options or TurnOptions()
        turn_id, given = context.clock.new_id(), GivenInput()
        surroundings: Sequence[JsonObject] = ()
        match work:
            case InputWork():
                given = await self._write_input(turn_id, work)
            case ReviewWork():
                surroundings = self.surroundings.all_of(work.settings)
                await self._write_start(turn_id)
            case CompactionWork() | CommandWork():
                await self._write_start(turn_id)
        # A turn has the servers of the last reload, also where its first step asks for no tools.
        self.servers.catch_up()
        recorder = context.recorder(turn_id)
        table = tool_table(
            self._tool_context(recorder, options), self.tools, GoalTool(context.goals, turn_id)
        )
        loop = self._model_loop(recorder, table, options)
        state, review = context.thread.state, None
        settings = of_turn(state.settings)
        if isinstance(work, ReviewWork):
            review, settings = self._review(recorder, work.target, surroundings), work.settings
        elif options.service_tier is not None:
            settings = settings.model_copy(update={"service_tier": options.service_tier})
        turn = Turn(self, turn_id, work, loop, given, review)
        context.slot.fill(turn)
        state.turn_settings = settings
        context.goals.turn_begins()
        if isinstance(work, InputWork):
            context.hooks.input_taken(context.thread.id, turn_id, work.user_input.content)
        return turn

    async def _write_input(self, turn_id: str, work: InputWork) -> GivenInput:
        """Write the start of a turn with its input, and with what changed around the model."""
        context, settings = self.context, work.settings
        self.plugin_switches.switch_off(context.thread.id, settings.disabled_plugin_ids)
        surroundings = await self.surroundings.news(of_turn(settings))
        user_input = await self.surroundings.skills.with_named(work.user_input)
        at_ms = context.clock.now_ms()
        user_message = user_message_item(user_input, context.clock, at_ms)
        await context.thread.append(
            *start_of_turn(
                context.thread.state,
                TurnStarted(at_ms=at_ms, turn_id=turn_id),
                settings,
                user_input,
                user_message,
                work.submission,
                surroundings,
            )
        )
        return GivenInput(
            message=user_message,
            items=user_input.items,
            needed_servers=self.surroundings.skills.needed_servers(user_input),
            named=self.mentions.named_by(user_input),
        )

    async def _write_start(self, turn_id: str) -> None:
        """Write the start of a turn without input."""
        at_ms = self.context.clock.now_ms()
        records: list[Record] = [TurnStarted(at_ms=at_ms, turn_id=turn_id)]
        if self.context.thread.state.queue.paused:
            # The pause outlives such a turn.
            records.append(QueuePaused(at_ms=at_ms))
        await self.context.thread.append(*records)

    def _model_loop(
        self, recorder: TurnRecorder, table: ToolTable, options: TurnOptions
    ) -> ModelLoop:
        return ModelLoop(recorder, self.port, self.model, table, options, self.settings)

    def _review(
        self, recorder: TurnRecorder, target: ReviewTarget, surroundings: Sequence[JsonObject]
    ) -> CodeReview:
        """Return a review; its reviewer is sent `surroundings` first."""
        context, options = self.context, TurnOptions()
        of_reviewer = ReviewRecorder(
            context.thread, recorder.turn_id, context.clients, context.clock
        )
        table = review_table(self._tool_context(of_reviewer, options), self.tools)
        reviewer = self._model_loop(of_reviewer, table, options)
        return CodeReview(target, recorder, of_reviewer, reviewer, surroundings)

    def _tool_context(self, recorder: TurnRecorder, options: TurnOptions) -> TurnContext:
        context = self.context
        return TurnContext(
            recorder=recorder,
            clients=context.clients,
            waiting_on_approval=context.status.waiting_on_approval,
            waiting_on_user_input=context.status.waiting_on_user_input,
            interrupt=partial(context.slot.interrupt, recorder.turn_id),
            features=lambda: self.model.features,
            mcp_meta=options.mcp_meta,
            metadata=self._turn_metadata,
            output_limit_bytes=self.settings.output_limit_bytes,
            timeouts=self.timeouts,
        )

    def _turn_metadata(self) -> JsonObject:
        turn = self.context.slot.turn
        assert turn is not None, "only a turn makes calls"
        return turn_metadata(
            self.context.thread.state,
            user_was_asked=turn.user_was_asked,
            trigger=turn.options.trigger,
            parent_turn_id=turn.options.parent_turn_id,
        )


class Turn(RunningTurn):
    """One turn of a thread; its start is in the log."""

    def __init__(
        self,
        turns: ThreadTurns,
        turn_id: str,
        work: TurnWork,
        loop: ModelLoop,
        given: GivenInput,
        review: CodeReview | None,
    ) -> None:
        """`review` is that of a ReviewWork."""
        kind: TurnKind | None = None
        if isinstance(work, CompactionWork | ReviewWork):
            kind = "compact" if isinstance(work, CompactionWork) else "review"
        super().__init__(turn_id, kind, loop)
        self._turns = turns
        self._context = turns.context
        self._work = work
        self._given = given
        self._review = review

    def run_soon(self) -> None:
        """Let the turn run in a task of its thread."""
        self._turns.tasks.start_soon(self.run)

    async def run(self) -> None:
        """Run to the end; when this returns the end is in the log and was published."""
        thread_id = self._context.thread.id
        THREAD.set(thread_id)
        TURN.set(self.id)
        with span(
            "turn", "turn", appserver__thread__id=thread_id, appserver__turn__id=self.id
        ) as work:
            end, failure = await self._run_to_end()
            work.set(appserver__turn__end=end)
            if failure is not None:
                work.fail(kind_of(failure.codex_error_info))
        # What goes on now belongs to the thread, and to no turn or request that is over.
        TURN.set(None)
        REQUEST.set(None)
        with without_span():
            await self._turns.go_on()

    async def _run_to_end(self) -> tuple[TurnEnd, TurnError | None]:
        context = self._context
        end: TurnEnd = "completed"
        context.slot.unpublished_turn_id = None
        context.status.publish()
        context.publisher.turn_started(self.id, context.thread.state.turns[-1].started_at_ms)
        if self._given.message is not None:
            context.publisher.user_message(self.id, self._given.message)
        failure: TurnError | None = None
        try:
            with self.scope:
                if await self._may_ask() or not await self._complete():
                    await self._loop()
        except ModelFailure as exc:
            failure = TurnError(message=exc.message, codex_error_info=exc.info)
        except OSError as exc:
            failure = context.publisher.failure(
                self.id, f"the log cannot be written: {exc.strerror}"
            )
        except Exception:
            logger.exception("turn %s failed", self.id)
            failure = context.publisher.failure(self.id, "internal error")
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(WRITE_END_S):
                async with context.slot.exclusive():
                    if context.slot.turn is self:
                        end = "interrupted" if failure is None else "failed"
                        await self._end(end, failure)
        return end, failure

    async def _may_ask(self) -> bool:
        """Run the user's hooks before the first request; False if one wants no request.

        What the input named goes with it; input that is queued may have the turn go on.
        """
        given = self._given
        if await self._turns.user_hooks.begin(self.id, given.message, given.items):
            return True
        self._given = GivenInput()
        return False

    async def _loop(self) -> None:
        """Do the work of the turn, then ask and call until the turn is complete.

        Raises:
            ModelFailure: the model failed for good; it was announced.
            OSError: the disk refused.
        """
        turns, loop = self._turns, self.loop
        if not isinstance(self._work, InputWork):
            await self._do_work()
            if await self._complete():
                return
        if self._given.needed_servers:
            await turns.skill_servers.offer(self.id, self._given.needed_servers)
        named = self._given.named
        for _ in range(MAX_REQUESTS):
            await turns.servers.before_request(named.wants)
            await turns.mentions.add_messages(self.id, named)
            named = NOTHING_NAMED
            await turns.surroundings.add_changes()
            await self._take_queued()
            answer = await loop.ask()
            await self._context.goals.spend(self.id, answer.usage)
            await loop.make_calls(answer)
            if answer.calls or await turns.user_hooks.stop(self.id, loop.last_message):
                continue
            if await self._complete():
                return
        raise loop.given_up(ModelFailure(f"the model made {MAX_REQUESTS} requests in one turn"))

    async def _do_work(self) -> None:
        """Do what comes before the thread's model is asked; directions are taken afterwards."""
        match self._work:
            case CompactionWork():
                await self.loop.compact()
            case CommandWork():
                await self._work.run(self)
            case ReviewWork():
                assert self._review is not None
                self.loop.last_message = await self._review.run()
                # What was queued meanwhile is for the thread's own model.
                state = self._context.thread.state
                state.turn_settings = of_turn(state.settings)
        self.kind = None

    async def _take_queued(self) -> None:
        """Make queued input visible to the model and publish it."""
        context = self._context
        if not context.thread.state.queued:
            return
        async with context.slot.exclusive():
            queued = list(context.thread.state.queued)
            await context.thread.append(InputTaken(at_ms=context.clock.now_ms()), sync=False)
        for entry in queued:
            if entry.message is not None:
                context.publisher.user_message(self.id, entry.message)

    async def _complete(self) -> bool:
        """Complete the turn unless input is queued that it has to go on for."""
        async with self._context.slot.exclusive():
            queued = self._context.thread.state.queued
            if any(entry.message is not None or entry.steers for entry in queued):
                return False
            await self._end("completed", None)
            return True

    async def _end(self, end: TurnEnd, error: TurnError | None) -> None:
        """End the turn: in the log, for clients, then for who waits for an idle thread.

        To be called under `TurnSlot.exclusive`. When the disk refuses, the end goes into the log
        with the next append, and the thread has the status of a system error.
        """
        context = self._context
        state = context.thread.state
        records = end_of_turn(state, self, context.clock.now_ms(), end, error)
        left = list(state.queued)
        marks: Sequence[Record] = ()
        try:
            marks = await context.thread.change(
                lambda state: [*records, *context.goals.marks_of_end(state, self.id, end, error)]
            )
        except OSError:
            logger.exception("the end of turn %s cannot be written", self.id)
            context.thread.defer(*records)
            context.status.log_failed = True
        for entry in left:
            if entry.message is not None:
                context.publisher.user_message(self.id, entry.message)
        context.slot.clear()
        state = context.thread.state
        state.turn_settings = None
        context.goals.publish(self.id, marks)
        context.status.publish()
        context.publisher.turn_completed(state.turns[-1], end, error, self.loop.last_message)
        context.thread.open_items.clear()
        self._turns.questions.turn_ended(self.id)
        context.hooks.turn_ended(context.thread.id, self.id)
        failure = None if error is None else kind_of(error.codex_error_info)
        self._turns.metrics.turn_ended(end, failure)
        logger.info("turn %s%s", end, f": {failure}" if failure else "")
