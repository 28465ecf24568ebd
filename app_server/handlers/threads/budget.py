"""thread/budget/*: what a thread may use.

Source: docs/usage.md, "Budgets".
"""

from collections.abc import Sequence

from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.threads.stored import change_thread, not_for_ephemeral
from app_server.models.catalogue.prices import CURRENCY, Prices, parse_amount, read_prices
from app_server.threads.log.state import ThreadState
from app_server.turns.usage.budgets import ended_by_budget, shown_budget
from protocol.jsonrpc.errors import invalid_member
from protocol.log.metadata import BudgetChanged
from protocol.log.rollout import Record
from protocol.threads.budget import (
    ThreadBudget,
    ThreadBudgetSetParams,
    ThreadBudgetSetResponse,
    ThreadBudgetUpdatedNotification,
)
from protocol.threads.thread import BudgetLimits

MAX_LIMIT = 1 << 53
"""Of tokens, turns and seconds: the largest that every client counts exactly."""


@serves("thread/budget/set")
async def set_budget(
    context: RequestContext, params: ThreadBudgetSetParams
) -> ThreadBudgetSetResponse:
    """Give a thread a budget; a turn that a budget has ended goes on."""
    services = context.services
    check_limits(params.budget)
    prices = read_prices(await services.configuration.read())
    at_ms, is_given = services.clock.now_ms(), "budget" in params.model_fields_set

    def decide(state: ThreadState) -> Sequence[Record]:
        budget = params.budget if is_given else state.metadata.budget
        if is_given:
            _require_room(state, budget, prices)
        goes_on = ended_by_budget(state) or None
        if budget == state.metadata.budget and not goes_on:
            return []
        return [BudgetChanged(at_ms=at_ms, budget=budget, goes_on=goes_on)]

    state, added = await change_thread(
        services,
        params.thread_id,
        decide,
        ephemeral=not_for_ephemeral("thread/budget/set", params.thread_id),
    )
    budget = await budget_of(services, state)
    if added:
        event = ThreadBudgetUpdatedNotification(
            thread_id=params.thread_id, scope="thread", budget=budget
        )
        context.after_answer(services.hub.emit, params.thread_id, event)
        if (session := services.sessions.find(params.thread_id)) is not None:
            session.goals.user_changed()
            context.after_answer(session.run_next_soon)
    return ThreadBudgetSetResponse(budget=budget)


async def budget_of(services: Services, state: ThreadState) -> ThreadBudget | None:
    """Show the budget of a thread, and how far it is used; None: it has none."""
    if (limits := state.metadata.budget) is None:
        return None
    return shown_budget(state, limits, read_prices(await services.configuration.read()))


def check_limits(budget: BudgetLimits | None, field: str = "budget") -> None:
    """Check what a client asks for.

    Raises:
        RpcError: it names the field and the rule.
    """
    if budget is None:
        return
    for name in ("tokens", "turns", "seconds"):
        limit = getattr(budget, name)
        if limit is not None and not 1 <= limit <= MAX_LIMIT:
            raise invalid_member(f"{field}.{name}", f"must be from 1 to {MAX_LIMIT}")
    if (cost := budget.cost) is not None:
        if not CURRENCY.fullmatch(cost.currency):
            rule = "must be three capital letters, such as `USD`"
            raise invalid_member(f"{field}.cost.currency", rule)
        if not parse_amount(cost.amount):
            rule = "must be a decimal number above 0, with at most nine decimals, such as `2.50`"
            raise invalid_member(f"{field}.cost.amount", rule)


def _require_room(state: ThreadState, budget: BudgetLimits | None, prices: Prices) -> None:
    """Refuse a budget that is used up already."""
    if budget is None:
        return
    used = shown_budget(state, budget, prices).used
    for name in ("tokens", "turns", "seconds"):
        limit, counted = getattr(budget, name), getattr(used, name)
        if limit is not None and counted >= limit:
            raise invalid_member(f"budget.{name}", f"must be more than {counted}, which are used")
    if (cost := budget.cost) is not None:
        for spent in used.cost:
            passed = (parse_amount(cost.amount) or 0) <= (parse_amount(spent.amount) or 0)
            if spent.currency == cost.currency and passed:
                raise invalid_member(
                    "budget.cost.amount", f"must be more than {spent.amount}, which are used"
                )
