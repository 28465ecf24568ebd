"""An exchange with a model: room for a request, the request, its response, the calls it wants.

A request is sent again as its provider allows, and accounted for. Room is made by a compaction: the
model sums the thread up, and the summary takes the place of the history in one record, once it is
whole; until then, and after a failure or an interrupt, the history is what it was. Turns and items
that clients see are not touched.
Does not know: the thread's session, whose turn takes these steps one after the other.
Source: docs/wire.md, "Turns"; docs/compaction.md; docs/config.md, "Models"; docs/mcp.md, "Calls".
"""

import random
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from itertools import groupby

import anyio

from app_server.models.catalogue.models import ModelFeatures, ModelInForce
from app_server.models.interface import (
    MAX_RETRY_S,
    RETRY_BASE_S,
    ItemDone,
    LimitsReported,
    Model,
    ModelEvent,
    ModelFailure,
    Provider,
    ResponseCompleted,
    with_status,
)
from app_server.models.prompt.context import (
    compacted,
    estimated_tokens,
    kept_tokens,
    split_unseen,
    tokens_in_context,
    without_oldest,
    worth_compacting,
)
from app_server.models.prompt.request import message, outputs_for_open_calls, request_body
from app_server.observability.telemetry.spans import span
from app_server.turns.context import ThreadContext
from app_server.turns.recorder import TurnRecorder
from app_server.turns.response import PatchProgress, ResponseReader, TurnPlans, texts_of
from app_server.turns.slot import RunningTurn, TurnOptions
from app_server.turns.tools import RequestedCall, ToolOffer, ToolTable
from app_server.turns.usage.recorder import SentRequest, UsageRecorder
from protocol.log.rollout import HistoryCompacted, ItemCompleted, TokensUsed, UsageOrigin
from protocol.model import Json, JsonObject
from protocol.server.account import AccountRateLimitsUpdatedNotification, RateLimitSnapshot
from protocol.turns.items import AgentMessageThreadItem, ContextCompactionThreadItem
from protocol.turns.notifications import ErrorNotification
from protocol.turns.turn import ThreadTokenUsage, TokenUsageBreakdown, TurnError


@dataclass(frozen=True, slots=True)
class ModelRequests:
    """Context that all model requests of a turn share."""

    recorder: TurnRecorder
    client: Model
    usage: UsageRecorder

    def attempts(self, model: ModelInForce) -> "Attempts":
        """Begin a request to a model that may be sent several times.

        Raises:
            ModelFailure: there is no provider of the name that settings have; it was announced.
        """
        if model.provider is None:
            provider_id = self.recorder.log.state.in_force.model_provider
            raise self.announced(ModelFailure(f"Model provider `{provider_id}` not found"))
        return Attempts(self, model.provider)

    def recorded(
        self, origin: UsageOrigin, model: ModelInForce, body: JsonObject
    ) -> AbstractAsyncContextManager[SentRequest]:
        """Record the request that is sent in the context, within budgets; see `UsageRecorder`.

        Raises:
            BudgetExceeded: it must not be sent.
            OSError: the disk refused.
        """
        turn_id = self.recorder.turn_id
        return self.usage.request(turn_id, origin, body, context_window=model.context_window)

    async def recount(self, last: TokenUsageBreakdown | None) -> None:
        """Write what the thread's context took last, after requests with a history of their own.

        Raises:
            OSError: the disk refused.
        """
        used = self.recorder.log.state.usage
        if used is None or used.last == last:
            return
        account = used.model_copy(update={"last": last or _tokens(0)})
        record = TokensUsed(at_ms=self.recorder.clock.now_ms(), usage=account)
        await self.recorder.log.append(record, sync=False)
        self.emit_usage(account)

    def measured(self, tokens: int, model: ModelInForce) -> ThreadTokenUsage:
        """Return the account of a context that was not counted by the model, but estimated."""
        before = self.recorder.log.state.usage
        return ThreadTokenUsage(
            total=_tokens(0) if before is None else before.total,
            last=_tokens(tokens),
            model_context_window=model.context_window,
        )

    def emit_usage(self, account: ThreadTokenUsage) -> None:
        """Send clients the account, which is in the log."""
        self.usage.emit(self.recorder.turn_id, account)

    def emit_limits(self, limits: Sequence[RateLimitSnapshot]) -> None:
        """Send clients where the account stands with its usage limits, one by one."""
        for limit in limits:
            self.recorder.clients.emit(AccountRateLimitsUpdatedNotification(rate_limits=limit))

    def announced(self, failure: ModelFailure) -> ModelFailure:
        """Notify of a failure that ends the turn, and return it to be raised."""
        error = TurnError(message=failure.message, codex_error_info=failure.info)
        self.emit_error(error, will_retry=False)
        return failure

    def emit_error(self, error: TurnError, *, will_retry: bool) -> None:
        """Send clients why a request failed."""
        self.recorder.clients.emit(
            ErrorNotification(**self.recorder.ids, error=error, will_retry=will_retry)
        )


@dataclass(slots=True)
class Attempts:
    """One request, as often as it is sent to its provider."""

    requests: ModelRequests
    provider: Provider
    _failed: int = field(default=0, init=False)

    async def wait(self, failure: ModelFailure) -> None:
        """Wait until the request may be sent again, after clients were notified.

        Raises:
            ModelFailure: `failure` itself: it is for good, and was announced.
            OSError: the disk refused.
        """
        requests, limit = self.requests, self.provider.stream_max_retries
        requests.emit_limits(failure.limits)
        if failure.sends_again:
            return
        if failure.retry_after_s is None or self._failed >= limit:
            raise requests.announced(failure)
        self._failed += 1
        recorder = requests.recorder
        await recorder.remember(*outputs_for_open_calls(recorder.history))
        error = TurnError(
            message=f"Reconnecting... {self._failed}/{limit}",
            codex_error_info=with_status("responseStreamDisconnected", failure.http_status),
            additional_details=failure.message,
        )
        requests.emit_error(error, will_retry=True)
        wait_s = max(failure.retry_after_s, RETRY_BASE_S * 2 ** (self._failed - 1))
        await anyio.sleep(min(wait_s, MAX_RETRY_S) * random.uniform(0.9, 1.1))


def _tokens(total: int) -> TokenUsageBreakdown:
    return TokenUsageBreakdown(
        total_tokens=total,
        input_tokens=0,
        cached_input_tokens=0,
        output_tokens=0,
        reasoning_output_tokens=0,
    )


PROMPT = """\
This conversation is about to be condensed: everything in it will be replaced by what you write \
now. Write the hand-over for the model that goes on with the work, in plain text, as short as it \
can be without losing anything that is still needed:

1. what the user wants, with every constraint and preference;
2. what was done and decided, and why;
3. names, paths, identifiers and values that will be needed again, exactly as they are;
4. what is unfinished, and the next step.

Leave out what no longer matters. Call no tools, and do not speak to the user."""

REQUEST_KIND = {"request_kind": "compaction"}
"""Entry of `client_metadata` by which a provider can recognise these requests."""

MAX_TRIMS = 8
"""Times that the oldest quarter is left out of a history too long even for its compaction."""

MAX_IN_A_ROW = 3
"""Automatic compactions with one response between them; then the turn fails."""


def is_too_long(failure: ModelFailure) -> bool:
    """Whether the model refused a request because it does not fit its context."""
    return failure.info == "contextWindowExceeded" and not failure.sends_again


def offered(tools: ToolTable, features: ModelFeatures, context: ThreadContext) -> ToolOffer:
    """Return the tools of a thread's next request, with what extensions say of them."""
    offer = tools.offer(features, context.tool_basis())
    instructions = context.instructions()
    return ToolOffer(offer.declarations, [*offer.notes, *instructions]) if instructions else offer


@dataclass(frozen=True, slots=True)
class Compactor:
    """Makes room in one turn's thread."""

    context: ThreadContext
    recorder: TurnRecorder
    requests: ModelRequests
    tools: ToolTable
    """Tools of the next request."""

    @property
    def may_help(self) -> bool:
        """Whether there is anything that a compaction would replace."""
        return worth_compacting(split_unseen(self.recorder.log.state.history)[0])

    async def compact_for_request(self, model: ModelInForce) -> None:
        """Compact what the model has seen; what it has not seen yet stays as it is, behind it.

        Raises:
            ModelFailure: it was announced; the history is what it was.
            OSError: the disk refused.
        """
        await self._compact(*split_unseen(self.recorder.log.state.history), model)

    async def compact_all(self, model: ModelInForce) -> None:
        """Compact the whole history; one without anything new stays as it is.

        Raises:
            ModelFailure, OSError: see `compact_for_request`.
        """
        await self._compact(list(self.recorder.log.state.history), [], model)

    async def _compact(
        self, seen: list[JsonObject], unseen: list[JsonObject], model: ModelInForce
    ) -> None:
        recorder, requests = self.recorder, self.requests
        item = ContextCompactionThreadItem(id=recorder.clock.new_id())
        recorder.started(item)
        if not worth_compacting(seen):
            await recorder.completed(item)
            return
        summary = await self._sum_up(seen, model)
        history = compacted(seen, summary, unseen, kept_tokens(model.compact_at))
        account = requests.measured(self._size_of(history, model.features), model)
        at_ms = item.completed_at_ms = recorder.clock.now_ms()
        await recorder.log.append(
            HistoryCompacted(at_ms=at_ms, turn_id=recorder.turn_id, items=history),
            TokensUsed(at_ms=at_ms, usage=account),
            ItemCompleted(at_ms=at_ms, turn_id=recorder.turn_id, item=item),
            sync=False,
        )
        requests.emit_usage(account)
        recorder.announce_completed(item)

    async def _sum_up(self, seen: Sequence[JsonObject], model: ModelInForce) -> str:
        requests, shown, trims = self.requests, list(seen), 0
        attempts = requests.attempts(model)
        while True:
            try:
                summary = await self._ask(shown, attempts.provider, model)
            except ModelFailure as failure:
                if is_too_long(failure) and trims < MAX_TRIMS and len(shown) > 1:
                    requests.emit_limits(failure.limits)
                    shown, trims = without_oldest(shown), trims + 1
                    attempts = requests.attempts(model)
                else:
                    await attempts.wait(failure)
            else:
                break
        requests.emit_limits(summary.limits)
        return summary.text

    async def _ask(
        self, shown: Sequence[JsonObject], provider: Provider, model: ModelInForce
    ) -> "_Summary":
        body = request_body(
            self.recorder.log.state,
            model.features,
            (),
            None,
            REQUEST_KIND,
            offered(self.tools, model.features, self.context).notes,
            history=[*shown, message("user", self.context.settings.compact_prompt or PROMPT)],
        )
        summary = _Summary()
        async with self.requests.recorded("compaction", model, body) as sent:
            try:
                async with self.requests.client.stream(provider, body) as batches:
                    async for batch in batches:
                        for event in batch:
                            summary.take(event)
            finally:
                sent.usage = summary.usage
            if not summary.text.strip():
                raise ModelFailure("the model wrote no summary")
        return summary

    def _size_of(self, history: Sequence[JsonObject], features: ModelFeatures) -> int:
        state = self.recorder.log.state
        tools, notes = offered(self.tools, features, self.context)
        body = request_body(state, features, tools, None, None, notes, history=history)
        parts: list[Json] = [body["instructions"], body["tools"], body["input"]]
        return estimated_tokens(parts)


@dataclass(slots=True)
class _Summary:
    """Summary from the response: its last message counts, and nothing of it is shown."""

    text: str = ""
    usage: TokenUsageBreakdown | None = None
    limits: Sequence[RateLimitSnapshot] = ()

    def take(self, event: ModelEvent) -> None:
        match event:
            case ItemDone() if event.item.get("type") == "message":
                self.text = "".join(texts_of(event.item.get("content")))
            case LimitsReported():
                self.limits = event.limits
            case ResponseCompleted():
                self.usage = event.usage


class ModelExchange:
    """Exchanges of one turn with its model, or of the review in it: one request at a time."""

    def __init__(
        self,
        context: ThreadContext,
        turn: RunningTurn,
        tools: ToolTable,
        options: TurnOptions,
    ) -> None:
        """`options` are those of the requests, which a review has none of."""
        recorder = turn.recorder
        self.last_message: AgentMessageThreadItem | None = None
        self._context = context
        self._turn = turn
        self._recorder = recorder
        self.tools = tools
        self._options = options
        self.requests = ModelRequests(recorder, context.server.model_client, context.usage)
        self._compactor = Compactor(context, recorder, self.requests, tools)
        self._plans = TurnPlans(recorder)
        self._compactions_in_a_row = 0
        self._was_too_long = False
        self._is_prepared = False

    async def compact(self) -> None:
        """Do what a turn of compaction begins with.

        Raises:
            ModelFailure, OSError: see `respond`.
        """
        await self._compactor.compact_all(self._context.model.in_force())

    async def respond(self) -> ResponseReader:
        """Have the model respond to the history, after making room for that.

        The response is whole, unless `RunningTurn.cut_off` was called; its calls are not made.

        Once a turn, a request that is too long is made shorter and sent again.

        Raises:
            ModelFailure: the model failed for good; it was announced.
            BudgetExceeded: a request might pass a budget, and was not sent.
            OSError: the disk refused.
        """
        self._turn.awaits_model = not self._recorder.has_own_history
        try:
            if not self._is_prepared:
                self._is_prepared = True
                if (warning := await self._context.model.prepare()) is not None:
                    self._context.clients.warning(warning)
            model = self._context.model.in_force()
            await self._make_room(model)
            response: ResponseReader | None = None
            attempts = self.requests.attempts(model)
            while response is None:
                try:
                    response = await self._send(attempts.provider, model)
                except ModelFailure as failure:
                    if not self._may_be_shortened(failure):
                        await attempts.wait(failure)
                        continue
                    self.requests.emit_limits(failure.limits)
                    self._was_too_long = True
                    await self._compactor.compact_for_request(model)
                    attempts = self.requests.attempts(model)
        finally:
            self._turn.awaits_model = False
        self.last_message = response.last_message or self.last_message
        if response.limits:
            self.requests.emit_limits(response.limits)
        return response

    async def _make_room(self, model: ModelInForce) -> None:
        """Compact before a request that would come too near to the model's limit."""
        if self._recorder.has_own_history:
            return
        limit = model.compact_at
        if limit is None or tokens_in_context(self._recorder.log.state) < limit:
            self._compactions_in_a_row = 0
            return
        if not self._compactor.may_help:
            # What is new is too long by itself: whether it fits is for the model to say.
            return
        if self._compactions_in_a_row == MAX_IN_A_ROW:
            text = f"the context stays above {limit} tokens, also after {MAX_IN_A_ROW} compactions"
            raise self.requests.announced(ModelFailure(text, "contextWindowExceeded"))
        self._compactions_in_a_row += 1
        await self._compactor.compact_for_request(model)

    def _may_be_shortened(self, failure: ModelFailure) -> bool:
        if self._recorder.has_own_history or self._was_too_long:
            return False
        return is_too_long(failure) and self._compactor.may_help

    async def _send(self, provider: Provider, model: ModelInForce) -> ResponseReader:
        """Send one request, and read its response as far as it is not cut off."""
        recorder, state, features = self._recorder, self._recorder.log.state, model.features
        plans = self._plans if state.in_force.mode == "plan" else None
        is_early = self._context.settings.shows_patches_early
        reader = ResponseReader(recorder, plans, PatchProgress(recorder) if is_early else None)
        offer = (
            self.tools.offer(features, self._context.tool_basis())
            if recorder.has_own_history
            else offered(self.tools, features, self._context)
        )
        body = request_body(
            state,
            features,
            offer.declarations,
            self._options.output_schema,
            self._options.client_metadata,
            offer.notes,
            history=recorder.history,
        )
        if self._turn.is_directed:
            # It came since the history was made: a request without it would be cut off at once.
            return reader
        origin: UsageOrigin = "review" if recorder.has_own_history else self._turn.origin
        name, port = state.in_force.model, recorder.clients.port
        async with self.requests.recorded(origin, model, body) as sent:
            with span(
                "model",
                f"chat {name}",
                gen_ai__operation__name="chat",
                gen_ai__provider__name=provider.id,
                gen_ai__request__model=name,
            ) as work:
                try:
                    with anyio.CancelScope() as self._turn.request:
                        async with self.requests.client.stream(provider, body) as batches:
                            async for batch in batches:
                                await reader.take(batch)
                                if port.is_crowded:
                                    await port.yield_to_loop()
                except ModelFailure as failure:
                    work.fail(failure.kind)
                    raise
                finally:
                    self._turn.request = None
                    sent.usage = reader.usage
                    reader.close()
                if reader.usage is not None:
                    work.set(
                        gen_ai__usage__input_tokens=reader.usage.input_tokens,
                        gen_ai__usage__output_tokens=reader.usage.output_tokens,
                    )
        return reader


MAX_SIDE_BY_SIDE = 32
"""Calls of one response that run at a time; the others wait their turn."""


async def run_calls(
    calls: Sequence[RequestedCall], tools: ToolTable, recorder: TurnRecorder
) -> None:
    """Run calls, begin them in order, and keep their outputs in order.

    Like a lock for readers and writers: calls that may overlap run together, any other runs alone,
    after all before it and before all after it.

    An output is kept as soon as those before it are. Cancelling stops the calls that run; when one
    fails the others are stopped and its failure comes through. Either way the outputs of calls that
    had ended are kept.
    """
    outputs = _Outputs(recorder)
    limit = anyio.CapacityLimiter(MAX_SIDE_BY_SIDE)

    async def run_one(index: int, call: RequestedCall) -> None:
        async with limit:
            await outputs.add(index, await tools.make_call(call))

    try:
        for together, group in groupby(enumerate(calls), lambda entry: tools.may_overlap(entry[1])):
            if together:
                async with anyio.create_task_group() as tasks:
                    for index, call in group:
                        tasks.start_soon(run_one, index, call)
            else:
                for index, call in group:
                    await run_one(index, call)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finally:
        await outputs.keep_rest()


@dataclass(slots=True)
class _Outputs:
    """Outputs of one response's calls, held until the calls before them are in the log."""

    _recorder: TurnRecorder
    _ended: dict[int, JsonObject] = field(default_factory=dict)
    _next: int = 0
    _keeping: anyio.Lock = field(default_factory=anyio.Lock)

    async def add(self, index: int, output: JsonObject) -> None:
        self._ended[index] = output
        # Cut off between the write and the note of it, an output would be written twice.
        with anyio.CancelScope(shield=True):
            async with self._keeping:
                ready: list[JsonObject] = []
                while self._next in self._ended:
                    ready.append(self._ended.pop(self._next))
                    self._next += 1
                if ready:
                    await self._recorder.remember(*ready)

    async def keep_rest(self) -> None:
        if self._ended:
            with anyio.CancelScope(shield=True):
                await self._recorder.remember(
                    *(self._ended[index] for index in sorted(self._ended))
                )
