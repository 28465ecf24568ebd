"""One turn, from accepted input to exactly one completion.

The loop: take what was queued, ask the model, make the calls it wants, until it wants none and
nothing is queued. A turn is owned by its thread; clients come and go.
Source: docs/wire.md, "Turns".
"""

import logging
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import anyio

from app_server.turns.model import Model, ModelFailure, ModelRequest
from app_server.turns.prompt import INTERRUPTED, outputs_for_open_calls, request_body
from app_server.turns.providers import Provider
from app_server.turns.recorder import TurnRecorder
from app_server.turns.response import ResponseReader
from app_server.turns.scheduling import run_calls
from app_server.turns.tool_router import FunctionCall, ToolRouter
from protocol.items import AgentMessageThreadItem
from protocol.model import Json
from protocol.rollout import TokensUsed
from protocol.turns import (
    ErrorNotification,
    McpMetaByServer,
    ThreadTokenUsage,
    ThreadTokenUsageUpdatedNotification,
    TokenUsageBreakdown,
    TurnError,
)

logger = logging.getLogger(__name__)

RETRY_BASE_S = 0.2
MAX_RETRY_S = 30.0
MAX_REQUESTS = 500
"""Model calls of one turn; a model that never stops calling tools is stopped here."""


@dataclass(slots=True)
class TurnOptions:
    """What holds for one turn alone."""

    output_schema: Json = None
    client_metadata: dict[str, str] | None = None
    mcp_meta: McpMetaByServer = field(default_factory=dict)
    """Changes when the turn is steered."""


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """What does not change while a thread is loaded."""

    providers: Mapping[str, Provider]
    context_window: int | None = None
    output_limit_bytes: int = 12_000


class TurnHost(Protocol):
    """The thread that a turn belongs to."""

    async def take_queued(self) -> None:
        """Make queued input visible to the model and announce it.

        Raises:
            OSError: the disk refused.
        """

    async def finish_if_idle(self, run: "TurnRun") -> bool:
        """Complete the turn unless input is queued; True if it was completed.

        Raises:
            OSError: the disk refused.
        """

    async def wait_for_servers(self) -> None:
        """Start MCP servers that have died again, and give those that start their grace."""


class TurnRun:
    """One run of the model loop."""

    def __init__(
        self,
        host: TurnHost,
        recorder: TurnRecorder,
        model: Model,
        router: ToolRouter,
        options: TurnOptions,
        settings: SessionSettings,
        sleep: Callable[[float], Awaitable[None]] = anyio.sleep,
    ) -> None:
        self.options = options
        self.scope = anyio.CancelScope()
        """Cancelled by an interrupt."""
        self.interruption = INTERRUPTED
        """What the model is told of an interrupt."""
        self.last_message: AgentMessageThreadItem | None = None
        self.user_was_asked = False
        """Whether a question was put to the user in this turn."""
        self.is_asking = False
        """Whether a model is being asked at this moment."""
        self._host = host
        self._recorder = recorder
        self._model = model
        self._router = router
        self._settings = settings
        self._sleep = sleep

    @property
    def id(self) -> str:
        """The turn's id."""
        return self._recorder.turn_id

    @property
    def started_at_ms(self) -> int:
        """When the turn was accepted."""
        turn = self._recorder.thread.state.turns[-1]
        return turn.started_at_ms

    async def loop(self) -> None:
        """Run until the turn is complete.

        Raises:
            ModelFailure: the model failed for good; it was announced.
            OSError: the disk refused.
        """
        for _ in range(MAX_REQUESTS):
            await self._host.wait_for_servers()
            await self._host.take_queued()
            self.is_asking = True
            try:
                reader = await self._respond()
            finally:
                self.is_asking = False
            self.last_message = reader.last_message or self.last_message
            await self._account(reader.usage)
            calls = [FunctionCall.of(item, self._recorder.new_id) for item in reader.calls]
            router = self._router
            await run_calls(calls, router.may_overlap, router.answer, self._recorder.remember)
            if not reader.calls and await self._host.finish_if_idle(self):
                return
        failure = ModelFailure(f"the model made {MAX_REQUESTS} requests in one turn")
        self._announce(failure, will_retry=False)
        raise failure

    async def _respond(self) -> ResponseReader:
        """Get one whole response, trying again as often as the provider allows."""
        provider = self._provider()
        limit = provider.stream_max_retries
        attempt = 0
        while True:
            try:
                return await self._respond_once(provider)
            except ModelFailure as failure:
                if failure.retry_after_s is None or attempt >= limit:
                    self._announce(failure, will_retry=False)
                    raise
                attempt += 1
                await self._recorder.remember(
                    *outputs_for_open_calls(self._recorder.thread.state.history)
                )
                self._announce_retry(failure, attempt, limit)
                wait_s = max(failure.retry_after_s, RETRY_BASE_S * 2 ** (attempt - 1))
                await self._sleep(min(wait_s, MAX_RETRY_S) * random.uniform(0.9, 1.1))

    async def _respond_once(self, provider: Provider) -> ResponseReader:
        state = self._recorder.thread.state
        body = request_body(
            state,
            self._router.declarations(),
            self.options.output_schema,
            self.options.client_metadata,
            self._router.notes(),
        )
        reader = ResponseReader(self._recorder)
        async with self._model.stream(ModelRequest(provider, body)) as batches:
            async for batch in batches:
                for event in batch:
                    await reader.take(event)
        return reader

    def _provider(self) -> Provider:
        provider_id = self._recorder.thread.state.settings.model_provider
        provider = self._settings.providers.get(provider_id)
        if provider is None:
            failure = ModelFailure(f"Model provider `{provider_id}` not found")
            self._announce(failure, will_retry=False)
            raise failure
        return provider

    async def _account(self, usage: TokenUsageBreakdown | None) -> None:
        if usage is None:
            return
        thread = self._recorder.thread
        before = thread.state.usage
        account = ThreadTokenUsage(
            total=usage if before is None else _sum(before.total, usage),
            last=usage,
            model_context_window=self._settings.context_window,
        )
        await thread.append(TokensUsed(at_ms=self._recorder.now_ms(), usage=account), sync=False)
        self._recorder.emit(
            ThreadTokenUsageUpdatedNotification(
                thread_id=thread.id, turn_id=self.id, token_usage=account
            )
        )

    def _announce(self, failure: ModelFailure, *, will_retry: bool) -> None:
        error = TurnError(message=failure.message, codex_error_info=failure.info)
        self._emit_error(error, will_retry=will_retry)

    def _announce_retry(self, failure: ModelFailure, attempt: int, limit: int) -> None:
        error = TurnError(
            message=f"Reconnecting... {attempt}/{limit}",
            codex_error_info={
                "responseStreamDisconnected": {"httpStatusCode": failure.http_status}
            },
            additional_details=failure.message,
        )
        self._emit_error(error, will_retry=True)

    def _emit_error(self, error: TurnError, *, will_retry: bool) -> None:
        self._recorder.emit(
            ErrorNotification(
                error=error,
                will_retry=will_retry,
                thread_id=self._recorder.thread.id,
                turn_id=self.id,
            )
        )


def _sum(a: TokenUsageBreakdown, b: TokenUsageBreakdown) -> TokenUsageBreakdown:
    return TokenUsageBreakdown(
        **{name: getattr(a, name) + getattr(b, name) for name in TokenUsageBreakdown.model_fields}
    )
