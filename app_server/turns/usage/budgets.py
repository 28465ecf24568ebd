"""Budgets of a loaded thread: each request to a model takes its part before it is sent.

What a request may take is reserved, by what its input is estimated to have and the most output it
may have, and given back when what it has used is in the ledger. A request for which there is no
room is not sent, and its turn ends.
Source: docs/usage.md, "Budgets".
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from app_server.config.effective import Configuration
from app_server.config.values import ConfigError
from app_server.models.catalogue.prices import (
    Money,
    Price,
    Prices,
    parse_amount,
    read_prices,
    render_amount,
    shown_money,
)
from app_server.models.prompt.context import estimated_tokens, tokens_in_context
from app_server.threads.budgets import TOKENS, Claim, Refused, Scope, granted_output
from app_server.threads.log.live import LiveThread
from app_server.threads.log.state import ThreadState
from app_server.threads.usage import Usage
from app_server.turns.clients import ThreadClients
from protocol.model import JsonObject
from protocol.threads.budget import (
    BudgetUse,
    ThreadBudget,
    ThreadBudgetUpdatedNotification,
)
from protocol.threads.thread import BudgetLimits

BUDGET_EXCEEDED = "budgetExceeded"
"""The `codexErrorInfo` of a turn that a budget has ended."""

MAX_OUTPUT_TOKENS = 32_768
"""Of a response while a budget of tokens or cost holds, unless less of it is left."""

THRESHOLDS = (50, 80, 100)
"""Percentages of a budget that clients are told of."""


OF_THREAD = "the budget of the thread is used up"


class BudgetExceeded(Exception):
    """A request was not sent, as it might have passed a budget; the text says which."""


@dataclass(slots=True)
class Reservation:
    """What a request that is under way may take of the budgets of its thread."""

    turn_id: str
    percent: int
    """Of the thread's budget, before the request."""
    taken: dict[str, int]
    """By unit."""
    output_tokens: int | None
    """The most that its response may have; None: no budget says."""


@dataclass(slots=True)
class ThreadBudgets:
    """The budgets that the requests of one thread count for."""

    log: LiveThread
    clients: ThreadClients
    configuration: Configuration
    _reserved: dict[str, int] = field(default_factory=dict, init=False)

    async def reserve(
        self, turn_id: str, body: JsonObject, *, of_history: bool
    ) -> Reservation | None:
        """Take what a request may use of each budget; None where there is none.

        `of_history` says that the body has the thread's own history.

        Raises:
            BudgetExceeded: there is no room for it; clients were notified.
        """
        state = self.log.state
        if (limits := state.metadata.budget) is None:
            return None
        prices = await self._prices()
        if (why := _why_no_turn(state, turn_id, limits)) is not None:
            self._refuse(turn_id, prices, why)
        wanted = Usage(input_tokens=_estimated_input(state, body, of_history=of_history))
        name = state.in_force.model_provider, state.in_force.model
        claims = list(_claims("thread", None, limits, wanted, prices.find(name)))
        used = _used(state, prices)
        granted = granted_output(
            [
                (claim, used.get(claim.unit, 0) + self._reserved.get(claim.unit, 0))
                for claim in claims
            ],
            MAX_OUTPUT_TOKENS,
        )
        if isinstance(granted, Refused):
            self._refuse(turn_id, prices, _shortage(granted, name[1]))
        taken = {claim.unit: claim.amount(granted) for claim in claims}
        for unit, amount in taken.items():
            self._reserved[unit] = self._reserved.get(unit, 0) + amount
        percent = shown_budget(state, limits, prices).percent
        return Reservation(turn_id, percent, taken, granted if claims else None)

    async def settle(self, reservation: Reservation) -> None:
        """Give back what a request took; what it has used is in the ledger."""
        for unit, amount in reservation.taken.items():
            self._reserved[unit] -= amount
        if (limits := self.log.state.metadata.budget) is None:
            return
        prices = await self._prices()
        percent = shown_budget(self.log.state, limits, prices).percent
        reached = [one for one in THRESHOLDS if reservation.percent < one <= percent]
        if reached:
            self._emit(reservation.turn_id, prices, threshold=max(reached))

    async def _prices(self) -> Prices:
        try:
            return read_prices(await self.configuration.read())
        except ConfigError:
            # Without prices nothing is sent for which there is a budget of money.
            return Prices({}, None)

    def require_whole(self, reservation: Reservation) -> None:
        """End the turn whose response was cut short, if that is for a budget.

        Raises:
            BudgetExceeded
        """
        granted = reservation.output_tokens
        if granted is not None and granted < MAX_OUTPUT_TOKENS:
            raise BudgetExceeded(f"{OF_THREAD}: there was room for {granted} tokens of a response")

    def _refuse(self, turn_id: str, prices: Prices, why: str) -> NoReturn:
        self._emit(turn_id, prices, exceeded=True)
        raise BudgetExceeded(f"{OF_THREAD}: {why}")

    def _emit(
        self,
        turn_id: str,
        prices: Prices,
        *,
        threshold: int | None = None,
        exceeded: bool = False,
    ) -> None:
        """Notify clients of how far a budget is used; all such events pass here."""
        state = self.log.state
        limits = state.metadata.budget
        self.clients.emit(
            ThreadBudgetUpdatedNotification(
                thread_id=state.id,
                turn_id=turn_id,
                scope="thread",
                budget=None if limits is None else shown_budget(state, limits, prices),
                threshold=threshold,
                exceeded=exceeded,
            )
        )


def ended_by_budget(state: ThreadState) -> bool:
    """Whether the last turn of a thread ended as its next request might have passed a budget."""
    last = state.turns[-1] if state.turns else None
    return (
        last is not None
        and last.error is not None
        and last.error.codex_error_info == BUDGET_EXCEEDED
    )


def shown_budget(state: ThreadState, limits: BudgetLimits, prices: Prices) -> ThreadBudget:
    """Show a thread's budget, and how far it is used."""
    total, cost = state.ledger.total(), _cost(state, prices)
    used = {
        "tokens": (total.tokens, limits.tokens),
        "turns": (state.ledger.turns, limits.turns),
        "seconds": (_seconds(total), limits.seconds),
    }
    if limits.cost is not None:
        limit = parse_amount(limits.cost.amount)
        used["cost"] = cost.get(limits.cost.currency, 0), limit
    shares = [100 * used // limit for used, limit in used.values() if limit]
    return ThreadBudget(
        limits=limits,
        used=BudgetUse(
            tokens=total.tokens,
            cost=shown_money(cost),
            turns=state.ledger.turns,
            seconds=_seconds(total),
        ),
        percent=max(shares, default=0),
    )


def _why_no_turn(state: ThreadState, turn_id: str, limits: BudgetLimits) -> str | None:
    ledger, seconds = state.ledger, _seconds(state.ledger.total())
    if limits.turns is not None and turn_id != ledger.last_turn_id and ledger.turns >= limits.turns:
        return f"all {limits.turns} turns are used"
    if limits.seconds is not None and seconds >= limits.seconds:
        return f"{seconds} of {limits.seconds} seconds are used"
    return None


def _claims(
    scope: Scope, name: str | None, limits: BudgetLimits, wanted: Usage, price: Price | None
) -> Iterator[Claim]:
    if limits.tokens is not None:
        yield Claim(scope, name, TOKENS, limits.tokens, wanted.input_tokens, 1)
    if limits.cost is not None:
        currency, limit = limits.cost.currency, parse_amount(limits.cost.amount) or 0
        if price is None or price.currency != currency:
            # Nobody could say when it is passed.
            yield Claim(scope, name, currency, UNKNOWN_COST, 0, 0)
        else:
            yield Claim(scope, name, currency, limit, price.cost(wanted), price.output)


UNKNOWN_COST = -1
"""Limit of a claim on money by a model whose price is not known."""


def _shortage(refused: Refused, model: str) -> str:
    claim = refused.claim
    if claim.limit == UNKNOWN_COST:
        return f"`{model}` has no price in {claim.unit}, so its cost cannot be counted"
    if claim.unit == TOKENS:
        return (
            f"{refused.used} of {claim.limit} tokens are used, and the next request has about "
            f"{claim.fixed}, before it is answered"
        )
    return (
        f"{render_amount(refused.used)} of {render_amount(claim.limit)} {claim.unit} are used, and "
        f"the next request costs about {render_amount(claim.fixed)}, before it is answered"
    )


def _used(state: ThreadState, prices: Prices) -> dict[str, int]:
    return {TOKENS: state.ledger.total().tokens, **_cost(state, prices)}


def _cost(state: ThreadState, prices: Prices) -> Money:
    cost = Money()
    for key, usage in state.ledger.sums.items():
        if (price := prices.find((key.provider, key.model))) is not None:
            cost[price.currency] = cost.get(price.currency, 0) + price.cost(usage)
    return cost


def _seconds(usage: Usage) -> int:
    return (usage.model_ms + usage.tool_ms) // 1000


def _estimated_input(state: ThreadState, body: JsonObject, *, of_history: bool) -> int:
    estimate = estimated_tokens([body["instructions"], body["tools"], body["input"]])
    return max(estimate, tokens_in_context(state)) if of_history else estimate
