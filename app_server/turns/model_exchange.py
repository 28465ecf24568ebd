"""An exchange with a model: a request, its response, and the calls that the response wants.

Does not know: the thread's session, whose turn takes these steps one after the other.
Source: docs/wire.md, "Turns"; docs/mcp.md, "Calls".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import groupby

import anyio

from app_server.models.catalogue.models import ModelInForce
from app_server.models.interface import ModelFailure, Provider
from app_server.models.prompt.context import tokens_in_context
from app_server.models.prompt.request import request_body
from app_server.observability.telemetry.spans import span
from app_server.turns.calls import RequestedCall
from app_server.turns.compaction import MAX_IN_A_ROW, Compactor, is_too_long
from app_server.turns.context import ThreadContext
from app_server.turns.model_requests import ModelRequests
from app_server.turns.recorder import TurnRecorder
from app_server.turns.response import PatchProgress, ResponseReader, TurnPlans
from app_server.turns.slot import RunningTurn, TurnOptions
from app_server.turns.tools import ToolTable
from protocol.log.rollout import UsageOrigin
from protocol.model import JsonObject
from protocol.turns.items import AgentMessageThreadItem


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
        prompt = context.settings.compact_prompt
        self._compactor = Compactor(recorder, self.requests, tools, prompt)
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
        body = request_body(
            state,
            features,
            self.tools.declarations(features),
            self._options.output_schema,
            self._options.client_metadata,
            self.tools.notes(),
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
