"""Budgets of a loaded thread: each request to a model takes its part before it is sent.

What a request may take is reserved, by the most that its input and its output may have, and given
back when what it has used is in the ledger. A request for which there is no room is not sent, and
its turn ends.
Source: docs/usage.md, "Budgets".
"""

import hashlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NoReturn

from pydantic_core import to_json

from app_server.config.effective import Configuration
from app_server.config.values import Config, ConfigError
from app_server.models.catalogue.prices import (
    Money,
    Price,
    Prices,
    parse_amount,
    read_prices,
    render_amount,
    shown_money,
)
from app_server.models.prompt.context import most_tokens
from app_server.runtime.clock import Clock
from app_server.threads.budgets import (
    TOKENS,
    BudgetClaim,
    ClaimRefused,
    from_store,
    granted_output,
)
from app_server.threads.log.live import LiveThread
from app_server.threads.log.state import ThreadState
from app_server.threads.usage import ModelName, Usage, day_of
from app_server.turns.clients import ThreadClients
from app_server.turns.usage.home import HomeBudgets, ScopedLimits, shared_limits
from protocol.model import JsonObject
from protocol.threads.budget import (
    BudgetUse,
    ThreadBudget,
    ThreadBudgetUpdatedNotification,
)
from protocol.threads.thread import BudgetLimits, MoneyAmount

logger = logging.getLogger(__name__)

BUDGET_EXCEEDED = "budgetExceeded"
"""The `codexErrorInfo` of a turn that a budget has ended."""

MAX_OUTPUT_TOKENS = 32_768
"""Of a response while a budget of tokens or cost holds, unless less of it is left."""

UNBOUNDED_TOKENS = 128_000
"""Of a response that its provider takes no bound for, unless its model's window is smaller."""

THRESHOLDS = (50, 80, 100)
"""Percentages of a budget that clients are told of."""


@dataclass(frozen=True, slots=True)
class InputBound:
    """The most tokens that the input of a request may have."""

    tokens: int
    around: bytes
    """Digest of what the request has around the thread's history."""


class BudgetExceeded(Exception):
    """A request was not sent, as it might have passed a budget; the text says which."""


@dataclass(slots=True)
class Reservation:
    """What a request that is under way may take of the budgets of its thread."""

    request_id: str
    turn_id: str
    percent: int
    """Of the thread's budget, before the request."""
    taken: dict[str, int]
    """Of the thread's budget, by unit."""
    shared: Sequence[BudgetClaim]
    """Claims on budgets of many threads."""
    price: Price | None
    """Of the model."""
    output_tokens: int | None
    """The most that its response may have; None: it has no bound."""
    model: ModelName
    around: bytes
    """Of its input; see InputBound."""


@dataclass(slots=True)
class ThreadBudgets:
    """The budgets that the requests of one thread count for."""

    log: LiveThread
    clients: ThreadClients
    clock: Clock
    configuration: Configuration
    home: HomeBudgets
    _reserved: dict[str, int] = field(default_factory=dict, init=False)
    _around: bytes = field(default=b"", init=False)
    """Of the request whose input was counted last; see InputBound."""

    async def reserve(
        self, turn_id: str, body: JsonObject, *, window: int | None = None
    ) -> Reservation | None:
        """Take what a request may use of each budget; None where there is none.

        A model with this `window` of tokens can write no longer response.

        Raises:
            BudgetExceeded: there is no room for it; clients were notified.
            BudgetsFailed: it cannot be known how far a budget of many threads is used.
        """
        state, config = self.log.state, await self._config()
        limits, settings = state.metadata.budget, state.in_force
        day = day_of(self.clock.now_ms())
        shared = shared_limits(config, day, settings.cwd)
        if limits is None and not shared:
            return None
        prices = read_prices(config)
        if limits is not None and (why := _why_no_turn(state, turn_id, limits)) is not None:
            self._refuse(turn_id, prices, why)
        model = settings.model_provider, settings.model
        bound = _input_bound(state, body, model, self._around)
        wanted = Usage(input_tokens=bound.tokens)
        price, is_bounded = prices.find(model), model not in self.home.unbounded
        if not is_bounded:
            wanted.output_tokens = min(window or UNBOUNDED_TOKENS, UNBOUNDED_TOKENS)
        own = ScopedLimits("thread", None, limits or BudgetLimits())
        claims = list(_claims(own, wanted, price, is_bounded=is_bounded))
        used = _used(state, prices)
        granted = granted_output(
            [
                (claim, used.get(claim.unit, 0) + self._reserved.get(claim.unit, 0))
                for claim in claims
            ],
            MAX_OUTPUT_TOKENS,
        )
        of_many = [
            claim for one in shared for claim in _claims(one, wanted, price, is_bounded=is_bounded)
        ]
        request_id = self.clock.new_id()
        if of_many and isinstance(granted, int):
            # Other requests of the thread count it while this one waits.
            taken = self._take(claims, granted)
            try:
                granted = await self.home.reserve(request_id, of_many, granted, prices)
            finally:
                self._give_back(taken)
        if isinstance(granted, ClaimRefused):
            why = _shortage(granted, settings.model, is_bounded=is_bounded)
            self._refuse(turn_id, prices, why, granted)
        taken = self._take(claims, granted)
        return Reservation(
            request_id,
            turn_id,
            0 if limits is None else shown_budget(state, limits, prices).percent,
            taken,
            of_many,
            price,
            granted if is_bounded and (claims or of_many) else None,
            model,
            bound.around,
        )

    def _take(self, claims: Sequence[BudgetClaim], output_tokens: int) -> dict[str, int]:
        taken = {claim.unit: claim.amount(output_tokens) for claim in claims}
        for unit, amount in taken.items():
            self._reserved[unit] = self._reserved.get(unit, 0) + amount
        return taken

    def _give_back(self, taken: Mapping[str, int]) -> None:
        for unit, amount in taken.items():
            self._reserved[unit] -= amount

    def count_input(self, reservation: Reservation) -> None:
        """Note that the thread's state has how the model counts the input of a request."""
        self._around = reservation.around

    async def settle(self, reservation: Reservation, usage: Usage) -> None:
        """Put what a request has used, which is in the ledger, in the place of what it took."""
        self._give_back(reservation.taken)
        await self._settle_shared(reservation, usage)
        if (limits := self.log.state.metadata.budget) is None:
            return
        prices = read_prices(await self._config())
        budget = shown_budget(self.log.state, limits, prices)
        if (reached := _reached(reservation.percent, budget.percent)) is not None:
            self._emit(reservation.turn_id, "thread", None, budget, threshold=reached)

    async def _settle_shared(self, reservation: Reservation, usage: Usage) -> None:
        if not reservation.shared:
            return
        price = reservation.price
        cost = 0 if price is None else price.cost(usage)
        amounts = [
            (claim, usage.tokens if claim.unit == TOKENS else cost) for claim in reservation.shared
        ]
        try:
            changes = await self.home.store.settle(reservation.request_id, amounts)
        except OSError:
            # It stays counted with the most that it may have used.
            logger.exception("what a request has used of budgets of the home cannot be written")
            return
        for claim, (before, after) in zip(reservation.shared, changes, strict=True):
            budget = _shared_budget(claim, from_store(claim.unit, after))
            percent = 100 * from_store(claim.unit, before) // claim.limit
            if (reached := _reached(percent, budget.percent)) is not None:
                self._emit(reservation.turn_id, claim.scope, claim.name, budget, threshold=reached)

    async def _config(self) -> Config:
        try:
            return await self.configuration.read()
        except ConfigError:
            # Without prices nothing is sent for which there is a budget of money.
            return Config({})

    def refuses_bound(self, reservation: Reservation) -> None:
        """Note that a provider has refused the bound of a response; the next one has none."""
        self.home.unbounded.add(reservation.model)

    def require_whole(self, reservation: Reservation) -> None:
        """End the turn whose response was cut short, if that is for a budget.

        Raises:
            BudgetExceeded
        """
        granted = reservation.output_tokens
        if granted is not None and granted < MAX_OUTPUT_TOKENS:
            raise BudgetExceeded(
                f"a budget is used up: there was room for {granted} tokens of a response"
            )

    def _refuse(
        self, turn_id: str, prices: Prices, why: str, refused: ClaimRefused | None = None
    ) -> NoReturn:
        state = self.log.state
        limits, scope, name = state.metadata.budget, "thread", None
        budget = None if limits is None else shown_budget(state, limits, prices)
        if refused is not None and refused.claim.scope != "thread":
            scope, name = refused.claim.scope, refused.claim.name
            budget = _shared_budget(refused.claim, refused.used)
        self._emit(turn_id, scope, name, budget, exceeded=True)
        of = f"the {scope}" if name is None else f"the {scope} {name}"
        raise BudgetExceeded(f"the budget of {of} is used up: {why}")

    def _emit(
        self,
        turn_id: str,
        scope: str,
        name: str | None,
        budget: ThreadBudget | None,
        *,
        threshold: int | None = None,
        exceeded: bool = False,
    ) -> None:
        """Notify clients of how far a budget is used; all such events of turns pass here."""
        self.clients.emit(
            ThreadBudgetUpdatedNotification(
                thread_id=self.log.id,
                turn_id=turn_id,
                scope=scope,
                name=name,
                budget=budget,
                threshold=threshold,
                exceeded=exceeded,
            )
        )


def _reached(before: int, after: int) -> int | None:
    """Return the highest threshold that was reached."""
    return max((one for one in THRESHOLDS if before < one <= after), default=None)


def _shared_budget(claim: BudgetClaim, used: int) -> ThreadBudget:
    """Show one limit of many threads, and what is used of it."""
    money = [] if claim.unit == TOKENS else shown_money({claim.unit: used})
    is_known = claim.limit != UNKNOWN_COST
    limits = BudgetLimits(tokens=claim.limit if claim.unit == TOKENS else None)
    if claim.unit != TOKENS and is_known:
        limits.cost = MoneyAmount(currency=claim.unit, amount=render_amount(claim.limit))
    return ThreadBudget(
        limits=limits,
        used=BudgetUse(tokens=used if claim.unit == TOKENS else 0, cost=money),
        percent=100 * used // claim.limit if is_known else 0,
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
    budget: ScopedLimits, wanted: Usage, price: Price | None, *, is_bounded: bool
) -> Iterator[BudgetClaim]:
    """Claim what a request wants, and for each token of its response if that has a bound."""
    scope, name, limits = budget.scope, budget.name, budget.limits
    if limits.tokens is not None:
        yield BudgetClaim(scope, name, TOKENS, limits.tokens, wanted.tokens, int(is_bounded))
    if limits.cost is not None:
        currency, limit = limits.cost.currency, parse_amount(limits.cost.amount) or 0
        if price is None or price.currency != currency:
            # Nobody could say when it is passed.
            yield BudgetClaim(scope, name, currency, UNKNOWN_COST, 0, 0)
        else:
            per_token = price.output if is_bounded else 0
            yield BudgetClaim(scope, name, currency, limit, price.most(wanted), per_token)


UNKNOWN_COST = -1
"""Limit of a claim on money by a model whose price is not known."""


def _shortage(refused: ClaimRefused, model: str, *, is_bounded: bool) -> str:
    claim = refused.claim
    if claim.limit == UNKNOWN_COST:
        return f"`{model}` has no price in {claim.unit}, so its cost cannot be counted"
    when = "before it is answered"
    if not is_bounded:
        when = "with its answer, for which the provider takes no bound"
    if claim.unit == TOKENS:
        return (
            f"{refused.used} of {claim.limit} tokens are used, and the next request may "
            f"have {claim.fixed}, {when}"
        )
    return (
        f"{render_amount(refused.used)} of {render_amount(claim.limit)} {claim.unit} are used, and "
        f"the next request may cost {render_amount(claim.fixed)}, {when}"
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


def _input_bound(
    state: ThreadState, body: JsonObject, model: ModelName, around: bytes
) -> InputBound:
    """Bound the input of a request: by its bytes, as far as its model has not counted it.

    `around` is what the request had around the history whose input was counted last.
    """
    items, counted = body["input"], state.counted
    own = {id(item) for item in state.history}
    before = list(takewhile(lambda item: id(item) not in own, items))
    # A request for an assessment has no tools.
    parts = [body["instructions"], body.get("tools"), body.get("text"), before]
    digest = hashlib.sha256(to_json(parts)).digest()
    tokens, known = 0, set[int]()
    if counted is not None and counted.model == model:
        tokens, known = counted.tokens, {id(item) for item in state.history[: counted.items]}
    if not known or digest != around:
        tokens += most_tokens(parts)
    new = [item for item in items[len(before) :] if id(item) not in known]
    return InputBound(tokens + most_tokens(new), digest)
