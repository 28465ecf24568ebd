"""A turn, from the record that begins it to the record that ends it.

It is written to the thread's log and put into the thread's slot, then it runs: it takes the input
that was queued, asks the model, makes the calls that the model wants, until it wants none and
nothing is queued. What waits for an idle thread begins then: a compaction, queued input, a goal.
A turn is owned by its thread; clients come and go.
Source: docs/wire.md, "Turns", "Rollout lines"; docs/hooks.md, "Events"; docs/queue.md;
docs/compaction.md; docs/threads.md, "Goals"; docs/tools.md, "Reviews".
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from typing import TypeAlias

import anyio

from app_server.config.values import ConfigError
from app_server.extensions.skills.in_turns import NeededServer, needed_servers
from app_server.models.interface import ModelFailure, kind_of
from app_server.models.prompt.request import message, outputs_for_open_calls
from app_server.models.prompt.user_input import TurnInput, user_message
from app_server.observability.log_context import REQUEST, THREAD, TURN
from app_server.observability.telemetry.spans import span, without_span
from app_server.runtime.clock import Clock
from app_server.sessions.code_review import CodeReview
from app_server.sessions.environment_messages import EnvironmentMessages, with_skills
from app_server.sessions.mentions import NOTHING_NAMED, InputMentions, NamedByInput, SkillServers
from app_server.sessions.settings import of_review, of_turn, with_required
from app_server.sessions.user_shell import UserCommand, UserShell
from app_server.threads.budgets import BudgetsFailed
from app_server.threads.failures import OwnershipLost
from app_server.threads.log.state import ThreadState, digest_of_words
from app_server.tools.registry import review_table, tool_table
from app_server.turns.clients import TurnEnd
from app_server.turns.context import ThreadContext
from app_server.turns.model_exchange import ModelExchange, run_calls
from app_server.turns.recorder import TurnRecorder
from app_server.turns.slot import RunningTurn, SessionClosed, TurnActive, TurnKind, TurnOptions
from app_server.turns.usage.budgets import BUDGET_EXCEEDED, BudgetExceeded
from protocol.log.rollout import (
    HistoryAppended,
    HistoryCompacted,
    InputAccepted,
    InputQueued,
    InputTaken,
    ItemCompleted,
    QueuePaused,
    Record,
    Settings,
    SettingsChanged,
    SubmissionQueued,
    SubmissionTaken,
    TurnCompleted,
    TurnStarted,
    UsageOrigin,
)
from protocol.model import JsonObject
from protocol.turns.code_review import ReviewTarget
from protocol.turns.items import (
    HookPromptFragment,
    HookPromptThreadItem,
    UserMessageThreadItem,
    text_of_input,
)
from protocol.turns.turn import TurnError

logger = logging.getLogger(__name__)

MAX_TIMES_STOPPED = 10
"""Times that hooks may continue one turn; then it ends."""

MAX_REQUESTS = 500
"""Requests of one turn; a model that never stops calling tools is stopped here."""

OUT_OF_BUDGET = (
    "A budget is used up, so the turn was stopped before it was finished. Work that had begun may "
    "be half done."
)
MORE_BUDGET = (
    "The budget that had stopped the last turn was changed: go on where it was stopped, with what "
    "the user had asked for."
)


# The work of a turn: what it does first, before it asks the thread's model.


@dataclass(frozen=True, slots=True)
class InputWork:
    """Input, of a user, a client or the server itself."""

    user_input: TurnInput
    settings: Settings
    """Of the thread, from this turn on."""
    submission: SubmissionQueued | None = None
    """Leaves the queue in the write that begins the turn."""
    origin: UsageOrigin = "user"


@dataclass(frozen=True, slots=True)
class CompactionWork:
    """A compaction of the whole history."""


@dataclass(frozen=True, slots=True)
class ReviewWork:
    """A review of code."""

    target: ReviewTarget
    settings: Settings
    """Of the review (`of_review`)."""


TurnWork: TypeAlias = InputWork | CompactionWork | ReviewWork | UserCommand
"""The work of a turn; after a command of the user the model is asked nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenInput:
    """The input that begins a turn, as it was written to the log."""

    message: UserMessageThreadItem | None = None
    """The item of it that clients see."""
    items: Sequence[JsonObject] = ()
    """The items of it that the model is sent."""
    needed_servers: Sequence[NeededServer] = ()
    """MCP servers that its skills need."""
    named: NamedByInput = NOTHING_NAMED


@dataclass(frozen=True, slots=True, kw_only=True)
class ThreadTurns:
    """Begins the turns of one loaded thread."""

    context: ThreadContext
    environment: EnvironmentMessages
    mentions: InputMentions
    skill_servers: SkillServers

    async def begin(self, work: TurnWork, options: TurnOptions | None = None) -> "Turn":
        """Write the start of a turn and put it into the slot; `Turn.run_soon` lets it run.

        To be called under `TurnSlot.reserve`, while the thread is idle.

        Raises:
            OSError: the disk refused; nothing was begun.
        """
        context, options = self.context, options or TurnOptions()
        turn_id, given = context.clock.new_id(), GivenInput()
        environment: Sequence[JsonObject] = ()
        match work:
            case InputWork():
                given = await self._write_input(turn_id, work)
            case ReviewWork():
                environment = self.environment.all_of(work.settings)
                await self._write_start(turn_id)
            case CompactionWork() | UserCommand():
                await self._write_start(turn_id)
        # A turn has the servers of the last reload, also where its first step asks for no tools.
        context.servers.catch_up()
        state = context.log.state
        settings = of_turn(state.settings)
        if isinstance(work, ReviewWork):
            settings = work.settings
        elif options.service_tier is not None:
            settings = settings.model_copy(update={"service_tier": options.service_tier})
        turn = Turn(self, turn_id, work, options, given, environment)
        context.slot.fill(turn)
        state.turn_settings = settings
        context.goals.turn_begins()
        if isinstance(work, InputWork):
            context.extensions.in_turns.input_taken(
                context.log.id, turn_id, work.user_input.content
            )
        return turn

    async def _write_input(self, turn_id: str, work: InputWork) -> GivenInput:
        """Write the start of a turn with its input, and with what changed around the model."""
        context, settings = self.context, work.settings
        context.server.plugins.installed.switch_off(context.log.id, settings.disabled_plugin_ids)
        environment = await self.environment.news(of_turn(settings))
        skills = self.environment.skills.used_by(work.user_input)
        user_input = work.user_input
        if skills:
            user_input = await with_skills(user_input, skills)
        at_ms = context.clock.now_ms()
        shown = user_message_item(user_input, context.clock, at_ms)
        await context.log.append(
            *start_of_turn(
                context.log.state,
                TurnStarted(at_ms=at_ms, turn_id=turn_id),
                settings,
                user_input,
                shown,
                work.submission,
                environment,
            )
        )
        return GivenInput(
            message=shown,
            items=user_input.items,
            needed_servers=needed_servers(skills) if skills else (),
            named=self.mentions.named_by(user_input, skills),
        )

    async def _write_start(self, turn_id: str) -> None:
        """Write the start of a turn without input."""
        at_ms = self.context.clock.now_ms()
        records: list[Record] = [TurnStarted(at_ms=at_ms, turn_id=turn_id)]
        if self.context.log.state.queue.paused:
            # The pause outlives such a turn.
            records.append(QueuePaused(at_ms=at_ms))
        await self.context.log.append(*records)

    # Turns that clients ask for without input.

    async def start_compaction(self) -> "Turn | CompactionInPlace | None":
        """Accept a compaction: a turn of its own, perhaps in the place of the one that runs.

        Once the caller has been answered, `run_soon` of what this returns is to be called. None if
        a compaction runs already: it goes on.

        Raises:
            SessionClosed
            OSError: the disk refused; nothing was begun.
        """
        async with self.context.slot.reserve():
            turn = self.context.slot.turn
            if turn is None:
                return await self.begin(CompactionWork())
            return None if turn.kind == "compact" else CompactionInPlace(self, turn)

    async def start_review(self, target: ReviewTarget) -> "Turn":
        """Begin a review of code; `Turn.run_soon` lets it run.

        Raises:
            TurnActive: a turn runs.
            ConfigError: an administrator's demands cannot be read.
            SessionClosed
            OSError: the disk refused; nothing was begun.
        """
        async with self.context.slot.reserve():
            if self.context.slot.turn is not None:
                raise TurnActive
            settings, _ = await self.allowed_settings()
            reviewed = of_review(settings, self.context.settings.review_model)
            return await self.begin(ReviewWork(target, reviewed))

    async def begin_queued(self, entry: SubmissionQueued) -> "Turn":
        """Begin a turn with an entry of the thread's queue; see `begin`.

        Raises:
            ConfigError: an administrator's demands cannot be read.
            OSError: the disk refused; nothing was begun.
        """
        settings, replaced = await self.allowed_settings()
        client_id, items = entry.client_user_message_id, await user_message(entry.input)
        digest = digest_of_words(self.context.log.id, client_id, entry.input)
        turn = await self.begin(
            InputWork(TurnInput(entry.input, items, client_id, digest=digest), settings, entry),
            TurnOptions(client_metadata=entry.responsesapi_client_metadata),
        )
        for warning in replaced:
            self.context.clients.warning(warning)
        return turn

    async def allowed_settings(self) -> tuple[Settings, Sequence[str]]:
        """Return the thread's settings as far as they are allowed, and what was replaced in them.

        Raises:
            ConfigError: an administrator's demands cannot be read.
        """
        context = self.context
        requirements = await context.server.configuration.requirements()
        return with_required(context.log.state.settings, requirements)

    # What waits for an idle thread.

    def run_next_soon(self) -> None:
        """Begin what waits, if the thread is idle; never waits itself."""
        self.context.tasks.start_soon(self.run_next)

    async def run_next(self) -> None:
        """Begin what waits, if the thread is idle: a compaction, queued input, or a goal.

        What cannot be begun waits on; the end of a turn, or more of it, tries again.
        """
        context, next_turn = self.context, None
        try:
            async with context.slot.reserve():
                if context.slot.turn is None:
                    next_turn = await self._begin_next()
        except SessionClosed:
            # What waits is on disk, and goes on when the thread is loaded again.
            pass
        except Exception:
            # Nobody is above this but the server, which goes on.
            logger.exception("thread %s cannot go on with what waits", context.log.id)
        if next_turn is not None:
            next_turn.run_soon()

    async def _begin_next(self) -> "Turn | None":
        """Begin the first of what waits; to be called under `TurnSlot.reserve`, while idle."""
        context = self.context
        if context.slot.compaction_waits:
            turn = await self.begin(CompactionWork())
            context.slot.compaction_waits = False
            return turn
        if (entry := context.log.state.queue.next) is not None:
            try:
                turn = await self.begin_queued(entry)
            except ConfigError as exc:
                context.clients.warning(f"queued input waits, as nothing may start: {exc}")
                return None
            context.clients.queue_changed()
            return turn
        if context.log.state.metadata.budget_goes_on:
            settings, _ = await self.allowed_settings()
            turn_input = TurnInput((), [message("developer", MORE_BUDGET)])
            return await self.begin(InputWork(turn_input, settings))
        if context.log.state.settings.mode == "plan":
            return None
        instruction = await context.goals.next_instruction()
        if instruction is None:
            return None
        turn_input = TurnInput((), [message("developer", instruction)])
        settings, _ = await self.allowed_settings()
        turn = await self.begin(InputWork(turn_input, settings, origin="goal"))
        context.goals.turn_began_alone()
        return turn


@dataclass(frozen=True, slots=True)
class CompactionInPlace:
    """A compaction that was accepted while a turn ran, in whose place it comes."""

    turns: ThreadTurns
    turn: RunningTurn

    def run_soon(self) -> None:
        """Stop the turn, if it still runs, and let the compaction begin."""
        slot = self.turns.context.slot
        slot.compaction_waits = True
        if slot.turn is self.turn:
            self.turn.scope.cancel()
        else:
            self.turns.run_next_soon()


class Turn(RunningTurn):
    """One turn of a thread; its start is in the log."""

    def __init__(
        self,
        turns: ThreadTurns,
        turn_id: str,
        work: TurnWork,
        options: TurnOptions,
        given: GivenInput,
        environment: Sequence[JsonObject],
    ) -> None:
        """`environment` is what the reviewer of a ReviewWork is sent first."""
        kind: TurnKind | None = None
        if isinstance(work, CompactionWork | ReviewWork):
            kind = "compact" if isinstance(work, CompactionWork) else "review"
        context = turns.context
        recorder = TurnRecorder(context.log, turn_id, context.clients, context.clock)
        super().__init__(recorder, kind, options)
        if isinstance(work, InputWork):
            self.origin = work.origin
        self._turns = turns
        self._context = context
        self._work = work
        self._given = given
        self._environment = environment
        self._exchange = ModelExchange(context, self, tool_table(context, self), options)
        self._times_stopped = 0
        """Times that hooks have continued the turn."""

    # From the beginning to the end.

    def run_soon(self) -> None:
        """Start the turn in a task of its thread."""
        self._context.tasks.start_soon(self.run)

    async def run(self) -> None:
        """Run to the end; when this returns the end was published.

        It is in the log first, unless the disk refuses it: then the next append has it.
        """
        context = self._context
        end: TurnEnd = "completed"
        failure: TurnError | None = None
        reason: TurnError | None = None
        THREAD.set(context.log.id)
        TURN.set(self.id)
        with span(
            "turn", "turn", appserver__thread__id=context.log.id, appserver__turn__id=self.id
        ) as work:
            context.slot.unpublished_turn_id = None
            context.status.publish()
            context.clients.turn_started(self.id, context.log.state.turns[-1].started_at_ms)
            if self._given.message is not None:
                self.recorder.announce_user_message(self._given.message)
            try:
                with self.scope:
                    if await self._run_start_hooks() or not await self._end_unless_input_pends():
                        await self._work_to_the_end()
            except ModelFailure as exc:
                failure = TurnError(message=exc.message, codex_error_info=exc.info)
            except BudgetExceeded as exc:
                reason = TurnError(message=str(exc), codex_error_info=BUDGET_EXCEEDED)
                self.interruption, self.is_interrupted = OUT_OF_BUDGET, True
            except BudgetsFailed as exc:
                failure = self._fail(str(exc.strerror))
            except OwnershipLost as exc:
                # Whoever has the thread now writes this end too, or this server with its lease.
                logger.warning("turn %s is cut off: %s", self.id, exc)
            except OSError as exc:
                failure = self._fail(f"the log cannot be written: {exc.strerror}")
            except Exception:
                logger.exception("turn %s failed", self.id)
                failure = self._fail("internal error")
            finally:
                # As long as the disk takes: without an end the thread would wait for it for ever.
                with anyio.CancelScope(shield=True):
                    async with context.slot.exclusive:
                        if context.slot.turn is self:
                            end = "interrupted" if failure is None else "failed"
                            await self._end(end, failure or reason)
            work.set(appserver__turn__end=end)
            if failure is not None:
                work.fail(kind_of(failure.codex_error_info))
        # What goes on now belongs to the thread, and to no turn or request that is over.
        TURN.set(None)
        REQUEST.set(None)
        with without_span():
            await self._turns.run_next()

    def _fail(self, reason: str) -> TurnError:
        """Notify clients that the turn fails for a reason that is not the model's."""
        error = TurnError(message=reason, codex_error_info="other")
        self._context.clients.error(self.id, error)
        return error

    async def _run_start_hooks(self) -> bool:
        """Run the user's hooks before the first request; False if one wants no request.

        The input of the turn is then taken out of what the model is sent, and what it named goes
        with it; input that is queued may have the turn go on.

        Raises:
            OSError: the log cannot be written.
        """
        context, hooks, given = self._context, self._context.hooks, self._given
        await hooks.read(context.servers.config)
        outcomes = [await hooks.begin(self.id)]
        if given.message is not None:
            prompt = text_of_input(given.message.content)
            outcomes.append(await hooks.fire("UserPromptSubmit", self.id, prompt=prompt))
        texts = [message("developer", text) for each in outcomes for text in each.context]
        await self.recorder.remember(*texts)
        if all(outcome.blocked is None for outcome in outcomes):
            return True
        history = without_newest(context.log.state.history, given.items)
        record = HistoryCompacted(at_ms=context.clock.now_ms(), turn_id=self.id, items=history)
        await context.log.append(record, sync=False)
        self._given = GivenInput()
        return False

    async def _run_stop_hooks(self) -> bool:
        """Run the user's hooks before the end; True if one has the turn go on.

        Raises:
            OSError: the log cannot be written.
        """
        context, hooks, said = self._context, self._context.hooks, self._exchange.last_message
        if self._times_stopped >= MAX_TIMES_STOPPED or not hooks.listens("Stop"):
            return False
        if context.log.state.pending_input:
            # The turn goes on for other reasons.
            return False
        outcome = await hooks.fire(
            "Stop",
            self.id,
            stop_hook_active=self._times_stopped > 0,
            last_assistant_message=None if said is None else said.text,
        )
        if outcome.blocked is None or outcome.stops:
            return False
        self._times_stopped += 1
        run_id, recorder = hooks.run_id("Stop"), self.recorder
        item = HookPromptThreadItem(
            id=recorder.clock.new_id(),
            fragments=[HookPromptFragment(text=outcome.blocked, hook_run_id=run_id)],
        )
        recorder.started(item)
        text = (
            f'<hook_prompt hook_run_id="{escape(run_id)}">{escape(outcome.blocked)}</hook_prompt>'
        )
        await recorder.completed(item, [message("user", text)])
        return True

    async def _work_to_the_end(self) -> None:
        """Do the work of the turn, then exchange with the model until the turn has ended.

        Raises:
            ModelFailure: the model failed for good; it was announced.
            OSError: the disk refused.
        """
        turns, exchange, context = self._turns, self._exchange, self._context
        if not isinstance(self._work, InputWork):
            await self._do_work()
            if await self._end_unless_input_pends():
                return
        if self._given.needed_servers:
            await turns.skill_servers.offer(self.id, self._given.needed_servers)
        named = self._given.named
        for _ in range(MAX_REQUESTS):
            await context.servers.before_request(named.wanted_servers)
            if named is not NOTHING_NAMED:
                await turns.mentions.add_messages(self.recorder, named)
                named = NOTHING_NAMED
            await turns.environment.add_changes()
            await self._take_pending_input()
            response = await exchange.respond()
            await context.goals.spend(self.id, response.usage)
            if response.calls:
                with context.usage.tools():
                    await run_calls(response.calls, exchange.tools, self.recorder)
                if not self.rests:
                    continue
                self.rests = False
            if not await self._run_stop_hooks() and await self._end_unless_input_pends():
                return
        failure = ModelFailure(f"the model made {MAX_REQUESTS} requests in one turn")
        raise exchange.requests.announced(failure)

    async def _do_work(self) -> None:
        """Do what comes before the thread's model is asked; directions are taken afterwards."""
        match self._work:
            case CompactionWork():
                await self._exchange.compact()
            case UserCommand():
                await UserShell(self._context).run(self._work, self)
            case ReviewWork():
                table = review_table(self._context, self)
                reviewer = ModelExchange(self._context, self, table, TurnOptions())
                target = self._work.target
                review = CodeReview(
                    target, self.recorder, reviewer, self._environment, self._context.usage
                )
                self._exchange.last_message = await review.run()
                # What was queued meanwhile is for the thread's own model.
                state = self._context.log.state
                state.turn_settings = of_turn(state.settings)
        self.kind = None

    async def _take_pending_input(self) -> None:
        """Make pending input visible to the model and publish it."""
        context = self._context
        if not context.log.state.pending_input:
            return
        async with context.slot.exclusive:
            pending = list(context.log.state.pending_input)
            await context.log.append(InputTaken(at_ms=context.clock.now_ms()), sync=False)
        for entry in pending:
            if entry.message is not None:
                self.recorder.announce_user_message(entry.message)

    async def _end_unless_input_pends(self) -> bool:
        """End the turn, unless input pends that it has to go on for; return whether it did."""
        async with self._context.slot.exclusive:
            pending = self._context.log.state.pending_input
            if any(entry.message is not None or entry.steers for entry in pending):
                return False
            await self._end("completed", None)
            return True

    async def _end(self, end: TurnEnd, error: TurnError | None) -> None:
        """End the turn: in the log, for clients, then for who waits for an idle thread.

        To be called under `TurnSlot.exclusive`. When the disk refuses, the end goes into the log
        with the next append, and the thread has the status of a system error.
        """
        context = self._context
        state = context.log.state
        records = [
            *context.usage.rest(self.id, self.origin),
            *end_of_turn(state, self, context.clock.now_ms(), end, error),
        ]
        left = list(state.pending_input)
        marks: Sequence[Record] = ()
        context.status.has_failed = end == "failed"
        try:
            marks = await context.log.change(
                lambda state: [*records, *context.goals.marks_of_end(state, self.id, end, error)]
            )
        except OSError:
            logger.exception("the end of turn %s cannot be written", self.id)
            context.log.defer(*records)
            context.status.has_failed = True
        for entry in left:
            if entry.message is not None:
                self.recorder.announce_user_message(entry.message)
        context.slot.clear()
        state = context.log.state
        state.turn_settings = None
        context.goals.publish(self.id, marks)
        context.status.publish()
        context.clients.turn_completed(
            state.turns[-1], end, error, self._exchange.last_message, context.clock.now_ms()
        )
        context.approvals.questions.turn_ended(self.id)
        context.extensions.in_turns.turn_ended(context.log.id, self.id)
        failure = None if error is None else kind_of(error.codex_error_info)
        context.server.metrics.turn_ended(end, failure)
        logger.info("turn %s%s", end, f": {failure}" if failure else "")
        # After all that has to go out; whatever the settings are, the turn has ended.
        context.servers.take_over()


def without_newest(history: Sequence[JsonObject], items: Sequence[JsonObject]) -> list[JsonObject]:
    """Return a history without items, of which the newest that are equal go."""
    newest_first = list(history[::-1])
    for item in reversed(items):
        with suppress(ValueError):
            newest_first.remove(item)
    return newest_first[::-1]


def user_message_item(
    user_input: TurnInput, clock: Clock, at_ms: int
) -> UserMessageThreadItem | None:
    """Make the item of a user's message; None if the input has no content."""
    if not user_input.content:
        return None
    return UserMessageThreadItem(
        id=clock.new_id(),
        client_id=user_input.client_id,
        content=list(user_input.content),
        started_at_ms=at_ms,
        completed_at_ms=at_ms,
    )


def name_records(user_input: TurnInput, turn_id: str, at_ms: int) -> list[Record]:
    """Write down that a turn took input which its client named; nothing without a name."""
    client_id, digest = user_input.client_id, user_input.digest
    if client_id is None or digest is None:
        return []
    return [InputAccepted(at_ms=at_ms, client_id=client_id, digest=digest, turn_id=turn_id)]


def start_of_turn(
    state: ThreadState,
    started: TurnStarted,
    settings: Settings,
    user_input: TurnInput,
    user_message: UserMessageThreadItem | None,
    submission: SubmissionQueued | None,
    environment: Sequence[JsonObject] = (),
) -> list[Record]:
    """Write down a turn that was accepted, with what the user said and what the model is to see.

    `environment` are the messages about where the model works, which come before the input.
    Queued input leaves the queue with the one line that makes it a message: a write that is cut off
    by a crash neither loses nor doubles it.
    """
    at_ms, turn_id, items = started.at_ms, started.turn_id, user_input.items
    records: list[Record] = []
    if settings != state.settings:
        records.append(SettingsChanged(at_ms=at_ms, settings=settings))
    records.extend((started, *name_records(user_input, turn_id, at_ms)))
    is_asked_for = user_message or submission or state.metadata.budget_goes_on
    if state.queue.paused and not is_asked_for:
        # Nobody said anything: a pause of the queue outlives such a turn.
        records.append(QueuePaused(at_ms=at_ms))
    if environment:
        records.append(HistoryAppended(at_ms=at_ms, items=list(environment)))
    if submission is not None:
        submission_id = submission.submission_id
        records.append(
            InputQueued(
                at_ms=at_ms,
                input_id=submission_id,
                items=list(items),
                message=user_message,
                submission_id=submission_id,
            )
        )
        # The second is for those who drop the turn later: its input does not wait again.
        return [
            *records,
            InputTaken(at_ms=at_ms),
            SubmissionTaken(at_ms=at_ms, submission_id=submission_id),
        ]
    if user_message is not None:
        records.append(ItemCompleted(at_ms=at_ms, turn_id=turn_id, item=user_message))
    if items:
        marks = list(user_input.signals) or None
        records.append(HistoryAppended(at_ms=at_ms, items=list(items), signals=marks))
    return records


def end_of_turn(
    state: ThreadState, turn: RunningTurn, at_ms: int, end: TurnEnd, error: TurnError | None
) -> list[Record]:
    """Write down how a turn ended, and what the model is to know of that."""
    records: list[Record] = []
    remembered = outputs_for_open_calls(state.history) if end != "completed" else []
    if end == "interrupted":
        remembered.append(message("developer", turn.interruption))
    if remembered:
        records.append(HistoryAppended(at_ms=at_ms, items=remembered))
    records.append(
        TurnCompleted(
            at_ms=at_ms,
            turn_id=turn.id,
            status=end,
            error=error,
            duration_ms=at_ms - state.turns[-1].started_at_ms,
        )
    )
    if end == "interrupted" and turn.is_interrupted:
        records.append(QueuePaused(at_ms=at_ms))
    return records
