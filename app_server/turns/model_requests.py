"""Requests of one turn to its model: sent again as the provider allows, and accounted for.

Source: docs/config.md, "Models"; docs/wire.md, "Turns".
"""

import random
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import anyio

from app_server.models.catalogue.models import ModelInForce
from app_server.models.interface import (
    MAX_RETRY_S,
    RETRY_BASE_S,
    Model,
    ModelFailure,
    Provider,
    with_status,
)
from app_server.models.prompt.request import outputs_for_open_calls
from app_server.turns.recorder import TurnRecorder
from app_server.turns.usage.recorder import SentRequest, UsageRecorder
from protocol.log.rollout import TokensUsed, UsageOrigin
from protocol.model import JsonObject
from protocol.server.account import AccountRateLimitsUpdatedNotification, RateLimitSnapshot
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
