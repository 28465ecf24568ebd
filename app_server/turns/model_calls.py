"""Calls of one turn to its model: tried again as often as the provider allows, and accounted for.

Source: docs/config.md, "Models"; docs/wire.md, "Turns".
"""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import anyio

from app_server.models.catalogue.thread_model import ThreadModel
from app_server.models.failures import MAX_RETRY_S, RETRY_BASE_S, with_status
from app_server.models.interface import Model, ModelFailure
from app_server.models.prompt.request import outputs_for_open_calls
from app_server.models.provider import Provider
from app_server.turns.recorder import TurnRecorder
from protocol.log.rollout import TokensUsed
from protocol.server.account import AccountRateLimitsUpdatedNotification, RateLimitSnapshot
from protocol.turns.notifications import ErrorNotification, ThreadTokenUsageUpdatedNotification
from protocol.turns.turn import ThreadTokenUsage, TokenUsageBreakdown, TurnError

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class ModelCalls:
    """How a turn speaks to its model."""

    recorder: TurnRecorder
    port: Model
    model: ThreadModel

    async def call(
        self,
        once: Callable[[Provider], Awaitable[Answer]],
        handled: Callable[[ModelFailure], bool] | None = None,
    ) -> Answer:
        """Get one whole answer, trying again as often as the provider allows.

        Raises:
            ModelFailure: for good; it was announced, unless the caller has `handled` it.
            OSError: the disk refused.
        """
        provider = self._provider()
        limit = provider.stream_max_retries
        attempt = 0
        while True:
            try:
                return await once(provider)
            except ModelFailure as failure:
                self.emit_limits(failure.limits)
                if handled is not None and handled(failure):
                    raise
                if failure.retry_after_s is None or attempt >= limit:
                    self.announce(failure)
                    raise
                attempt += 1
                await self.recorder.remember(*outputs_for_open_calls(self.recorder.history))
                self._announce_retry(failure, attempt, limit)
                wait_s = max(failure.retry_after_s, RETRY_BASE_S * 2 ** (attempt - 1))
                await anyio.sleep(min(wait_s, MAX_RETRY_S) * random.uniform(0.9, 1.1))

    def _provider(self) -> Provider:
        provider = self.model.provider
        if provider is None:
            provider_id = self.recorder.thread.state.in_force.model_provider
            failure = ModelFailure(f"Model provider `{provider_id}` not found")
            self.announce(failure)
            raise failure
        return provider

    async def account(self, usage: TokenUsageBreakdown | None) -> None:
        """Add what a call used to the thread's account, and notify."""
        if usage is None:
            return
        before = self.recorder.thread.state.usage
        account = ThreadTokenUsage(
            total=usage if before is None else _sum(before.total, usage),
            last=usage,
            model_context_window=self.model.context_window,
        )
        await self._write(account)

    async def recount(self, last: TokenUsageBreakdown | None) -> None:
        """Write what the thread's context took last, after calls with a history of their own.

        Raises:
            OSError: the disk refused.
        """
        used = self.recorder.thread.state.usage
        if used is None or used.last == last:
            return
        await self._write(used.model_copy(update={"last": last or _tokens(0)}))

    async def _write(self, account: ThreadTokenUsage) -> None:
        record = TokensUsed(at_ms=self.recorder.now_ms(), usage=account)
        await self.recorder.thread.append(record, sync=False)
        self.emit_usage(account)

    def measured(self, tokens: int) -> ThreadTokenUsage:
        """Return the account of a context that was not counted by the model, but estimated."""
        before = self.recorder.thread.state.usage
        return ThreadTokenUsage(
            total=_tokens(0) if before is None else before.total,
            last=_tokens(tokens),
            model_context_window=self.model.context_window,
        )

    def emit_usage(self, account: ThreadTokenUsage) -> None:
        """Send clients the account, which is in the log."""
        self.recorder.emit(
            ThreadTokenUsageUpdatedNotification(**self.recorder.ids, token_usage=account)
        )

    def emit_limits(self, limits: Sequence[RateLimitSnapshot]) -> None:
        """Send clients where the account stands with its usage limits, one by one."""
        for limit in limits:
            self.recorder.emit(AccountRateLimitsUpdatedNotification(rate_limits=limit))

    def announce(self, failure: ModelFailure) -> None:
        """Notify of a failure that ends the turn."""
        error = TurnError(message=failure.message, codex_error_info=failure.info)
        self._emit_error(error, will_retry=False)

    def _announce_retry(self, failure: ModelFailure, attempt: int, limit: int) -> None:
        error = TurnError(
            message=f"Reconnecting... {attempt}/{limit}",
            codex_error_info=with_status("responseStreamDisconnected", failure.http_status),
            additional_details=failure.message,
        )
        self._emit_error(error, will_retry=True)

    def _emit_error(self, error: TurnError, *, will_retry: bool) -> None:
        self.recorder.emit(
            ErrorNotification(**self.recorder.ids, error=error, will_retry=will_retry)
        )


def _tokens(total: int) -> TokenUsageBreakdown:
    return TokenUsageBreakdown(
        total_tokens=total,
        input_tokens=0,
        cached_input_tokens=0,
        output_tokens=0,
        reasoning_output_tokens=0,
    )


def _sum(a: TokenUsageBreakdown, b: TokenUsageBreakdown) -> TokenUsageBreakdown:
    return TokenUsageBreakdown(
        **{name: getattr(a, name) + getattr(b, name) for name in TokenUsageBreakdown.model_fields}
    )
