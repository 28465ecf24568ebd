"""The model of one turn: it is asked, and the calls that it wants are made.

Does not know: the thread's session, whose turn takes these steps one after the other.
Source: docs/wire.md, "Turns".
"""

from dataclasses import dataclass, field

import anyio

from app_server.models.catalogue.thread_model import ThreadModel
from app_server.models.interface import EventBatches, Model, ModelFailure, ModelRequest
from app_server.models.prompt.context import tokens_in_context
from app_server.models.prompt.request import request_body
from app_server.models.provider import Provider
from app_server.observability.telemetry.spans import span
from app_server.turns.compaction import MAX_IN_A_ROW, Compactor, is_too_long
from app_server.turns.model_calls import ModelCalls
from app_server.turns.recorder import TurnRecorder
from app_server.turns.response.patch_progress import PatchProgress
from app_server.turns.response.plan_messages import TurnPlans
from app_server.turns.response.reader import ResponseReader
from app_server.turns.session_settings import SessionSettings
from app_server.turns.tools.call import RequestedCall
from app_server.turns.tools.scheduling import run_calls
from app_server.turns.tools.table import ToolTable
from protocol.model import Json
from protocol.turns.items import AgentMessageThreadItem
from protocol.turns.requests import McpMetaByServer


@dataclass(slots=True)
class TurnOptions:
    """What holds for one turn alone."""

    output_schema: Json = None
    client_metadata: dict[str, str] | None = None
    """Changes when the turn is steered."""
    mcp_meta: McpMetaByServer = field(default_factory=dict)
    """Changes when the turn is steered."""
    service_tier: str | None = None
    """Takes the place of the thread's; `default` means none."""
    trigger: str | None = None
    """What made the client start the turn."""
    parent_turn_id: str | None = None
    """The turn that caused this one."""


class ModelLoop:
    """The requests and calls of one turn, or of the review in it."""

    def __init__(
        self,
        recorder: TurnRecorder,
        port: Model,
        model: ThreadModel,
        tools: ToolTable,
        options: TurnOptions,
        settings: SessionSettings,
    ) -> None:
        self.options = options
        self.last_message: AgentMessageThreadItem | None = None
        self.is_asking = False
        """Whether a model is being asked at this moment."""
        self._recorder = recorder
        self._tools = tools
        self._model = model
        self.calls = ModelCalls(recorder, port, model)
        self._compactor = Compactor(
            recorder,
            self.calls,
            settings.compact_prompt,
            lambda: (tools.declarations(), tools.notes()),
        )
        self._plans = TurnPlans(recorder)
        self._shows_patches_early = settings.shows_patches_early
        self._compactions_in_a_row = 0
        self._was_too_long = False
        self._is_prepared = False
        self._request: anyio.CancelScope | None = None
        """Of the request that is under way."""

    @property
    def is_directed(self) -> bool:
        """Whether a user has said something that the model was not sent yet."""
        if self._recorder.has_own_history:
            return False
        return any(entry.message is not None for entry in self._recorder.thread.state.queued)

    def cut_off(self) -> None:
        """Cut off the request that is under way, if a user has said something since it was made.

        What the model has completed is kept, and what it has begun is dropped. Compactions and
        reviews go on.
        """
        if self._request is not None and self.is_directed:
            self._request.cancel()

    async def compact(self) -> None:
        """Do what a turn of compaction begins with.

        Raises:
            ModelFailure, OSError: see `ask`.
        """
        await self._compactor.compact_all()

    async def ask(self) -> ResponseReader:
        """Get an answer of the model, after making room for it; whole, unless it is cut off.

        Once a turn, a request that is too long is made shorter and sent again.

        Raises:
            ModelFailure: the model failed for good; it was announced.
            OSError: the disk refused.
        """
        self.is_asking = True
        try:
            if not self._is_prepared:
                self._is_prepared = True
                await self._model.prepare()
            await self._make_room()
            try:
                answer = await self.calls.call(self._respond, self._may_be_shortened)
            except ModelFailure as failure:
                if not self._may_be_shortened(failure):
                    raise
                answer = await self._respond_shortened()
        finally:
            self.is_asking = False
        self.last_message = answer.last_message or self.last_message
        await self.calls.account(answer.usage)
        self.calls.emit_limits(answer.limits)
        return answer

    async def make_calls(self, answer: ResponseReader) -> None:
        """Make the calls that an answer wants.

        Raises:
            OSError: the disk refused.
        """
        calls = [RequestedCall.of(item, self._recorder.new_id) for item in answer.calls]
        tools = self._tools
        await run_calls(calls, tools.may_overlap, tools.answer, self._recorder.remember)

    async def _make_room(self) -> None:
        """Compact before a request that would come too near to the model's limit."""
        if self._recorder.has_own_history:
            return
        limit = self._model.compact_at
        if limit is None or tokens_in_context(self._recorder.thread.state) < limit:
            self._compactions_in_a_row = 0
            return
        if not self._compactor.may_help:
            # What is new is too long by itself: whether it fits is for the model to say.
            return
        if self._compactions_in_a_row == MAX_IN_A_ROW:
            text = f"the context stays above {limit} tokens, also after {MAX_IN_A_ROW} compactions"
            raise self.given_up(ModelFailure(text, "contextWindowExceeded"))
        self._compactions_in_a_row += 1
        await self._compactor.compact_for_request()

    async def _respond_shortened(self) -> ResponseReader:
        self._was_too_long = True
        await self._compactor.compact_for_request()
        return await self.calls.call(self._respond)

    def _may_be_shortened(self, failure: ModelFailure) -> bool:
        if self._recorder.has_own_history or self._was_too_long:
            return False
        return is_too_long(failure) and self._compactor.may_help

    async def _respond(self, provider: Provider) -> ResponseReader:
        state = self._recorder.thread.state
        body = request_body(
            state,
            self._model.features,
            self._tools.declarations(),
            self.options.output_schema,
            self.options.client_metadata,
            self._tools.notes(),
            history=self._recorder.history,
        )
        plans = self._plans if state.in_force.mode == "plan" else None
        patches = PatchProgress(self._recorder) if self._shows_patches_early else None
        reader = ResponseReader(self._recorder, plans, patches)
        if self.is_directed:
            # It came since the history was made: a request without it would be cut off at once.
            return reader
        model = state.in_force.model
        with span(
            "model",
            f"chat {model}",
            gen_ai__operation__name="chat",
            gen_ai__provider__name=provider.id,
            gen_ai__request__model=model,
        ) as work:
            try:
                with anyio.CancelScope() as self._request:
                    async with self.calls.port.stream(ModelRequest(provider, body)) as batches:
                        await self._read(batches, reader)
            except ModelFailure as failure:
                work.fail(failure.kind)
                raise
            finally:
                self._request = None
                reader.close()
            if reader.usage is not None:
                work.set(
                    gen_ai__usage__input_tokens=reader.usage.input_tokens,
                    gen_ai__usage__output_tokens=reader.usage.output_tokens,
                )
        return reader

    async def _read(self, batches: EventBatches, reader: ResponseReader) -> None:
        async for batch in batches:
            # Of all that comes most is text, and none of it has to be waited for.
            left = batch
            while left:
                passed = reader.pass_on(left)
                if not passed:
                    # What is complete gets into the log and out to clients, or neither.
                    with anyio.CancelScope(shield=True):
                        await reader.take(left[0])
                left = left[passed or 1 :]
                if self._recorder.is_crowded:
                    await self._recorder.yield_to_loop()

    def given_up(self, failure: ModelFailure) -> ModelFailure:
        """Announce a failure that ends the turn, and return it to be raised."""
        self.calls.announce(failure)
        return failure
