"""Recording of usage: each request to a model and the time of tools, in the log of their thread.

A request has its record when it is over, however it ended, before its calls are made and its turn
ends. The account that clients are sent (`thread/tokenUsage/updated`) is in the same write.
Source: docs/usage.md, "Ledger".
"""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field

import anyio

from app_server.models.interface import ModelFailure
from app_server.runtime.clock import Clock
from app_server.threads.log.live import LiveThread
from app_server.threads.usage import usage_of
from app_server.turns.clients import ThreadClients
from app_server.turns.slot import SessionStatus
from app_server.turns.usage.budgets import ThreadBudgets
from protocol.log.rollout import Record, TokensUsed, UsageOrigin, UsageRecorded
from protocol.model import JsonObject
from protocol.turns.notifications import ThreadTokenUsageUpdatedNotification
from protocol.turns.turn import ThreadTokenUsage, TokenUsageBreakdown


@dataclass(slots=True)
class SentRequest:
    """One request to a model, until its record is written."""

    usage: TokenUsageBreakdown | None = None
    """To be set once the model has reported it."""


@dataclass(slots=True)
class UsageRecorder:
    """Records the usage of one loaded thread."""

    log: LiveThread
    clients: ThreadClients
    clock: Clock
    status: SessionStatus
    budgets: ThreadBudgets
    _tool_ms: int = field(default=0, init=False)
    """Time of tools that no record has yet."""

    @asynccontextmanager
    async def request(
        self,
        turn_id: str,
        origin: UsageOrigin,
        body: JsonObject,
        *,
        context_window: int | None = None,
        of_thread: bool = True,
    ) -> AsyncIterator[SentRequest]:
        """Record the request that is sent in the context, and its usage, within the budgets.

        Where they bound its response, the body is given that bound. A failure for that bound
        `sends_again`: the caller sends the request once more, which has no bound then. A response
        that is whole also changes the thread's account, if it is `of_thread`, whose model has this
        `context_window`.

        Raises:
            BudgetExceeded: it must not be sent, as it might pass a budget.
            OSError: the disk refused.
        """
        # The body was made of it just now.
        history = self.log.state.history
        history_items = None if origin in ("review", "compaction") else len(history)
        reservation = await self.budgets.reserve(turn_id, body, window=context_window)
        if reservation is not None and reservation.output_tokens is not None:
            body["max_output_tokens"] = reservation.output_tokens
        sent, began_ms = SentRequest(), self.clock.monotonic_ms()
        records: list[Record] = []
        try:
            yield sent
            if of_thread and sent.usage is not None:
                records.append(self._accounted(sent.usage, context_window))
        except ModelFailure as failure:
            sent.usage = sent.usage or failure.usage
            if reservation is not None:
                if failure.is_cut_short:
                    self.budgets.require_whole(reservation)
                if failure.names_bound and reservation.output_tokens is not None:
                    self.budgets.refuses_bound(reservation)
                    failure.sends_again = True
            raise
        finally:
            record = self._record(turn_id, origin)
            record.request_id, record.usage = self.clock.new_id(), sent.usage
            record.model_ms = self.clock.monotonic_ms() - began_ms
            # What was taken out of the history meanwhile has made another one.
            is_same = self.log.state.history is history
            if reservation is not None and sent.usage is not None and is_same:
                record.history_items = history_items
            with anyio.CancelScope(shield=True):
                try:
                    await self.log.append(record, *records, sync=False)
                    if reservation is not None and record.history_items is not None:
                        self.budgets.count_input(reservation)
                finally:
                    if reservation is not None:
                        await self.budgets.settle(reservation, usage_of(record))
        for account in records:
            assert isinstance(account, TokensUsed)
            self.emit(turn_id, account.usage)

    @contextmanager
    def tools(self) -> Iterator[None]:
        """Count the time of the calls in the context, but for the time that people take."""
        began_ms, waited_ms = self.clock.monotonic_ms(), self.status.waited_ms
        try:
            yield
        finally:
            waited_ms = self.status.waited_ms - waited_ms
            self._tool_ms += max(self.clock.monotonic_ms() - began_ms - waited_ms, 0)

    def rest(self, turn_id: str, origin: UsageOrigin) -> Sequence[Record]:
        """Return the record of what a turn that ends has used since its last request."""
        return [self._record(turn_id, origin)] if self._tool_ms else []

    def emit(self, turn_id: str, account: ThreadTokenUsage) -> None:
        """Send clients the account, which is in the log."""
        self.clients.emit(
            ThreadTokenUsageUpdatedNotification(
                thread_id=self.log.id, turn_id=turn_id, token_usage=account
            )
        )

    def _record(self, turn_id: str, origin: UsageOrigin) -> UsageRecorded:
        settings, tool_ms = self.log.state.in_force, self._tool_ms
        self._tool_ms = 0
        return UsageRecorded(
            at_ms=self.clock.now_ms(),
            turn_id=turn_id,
            origin=origin,
            model=settings.model,
            model_provider=settings.model_provider,
            cwd=settings.cwd,
            tool_ms=tool_ms,
        )

    def _accounted(self, usage: TokenUsageBreakdown, context_window: int | None) -> TokensUsed:
        before = self.log.state.usage
        account = ThreadTokenUsage(
            total=usage if before is None else _sum(before.total, usage),
            last=usage,
            model_context_window=context_window,
        )
        return TokensUsed(at_ms=self.clock.now_ms(), usage=account)


def _sum(a: TokenUsageBreakdown, b: TokenUsageBreakdown) -> TokenUsageBreakdown:
    return TokenUsageBreakdown(
        **{name: getattr(a, name) + getattr(b, name) for name in TokenUsageBreakdown.model_fields}
    )
