"""thread/budget/*: what a thread may use before its turns end."""

from typing import Literal

from typing_extensions import TypeAliasType

from protocol.model import Int64, OpenEnum, WireModel
from protocol.thread_ids import ThreadIdParam
from protocol.threads.thread import BudgetLimits, MoneyAmount


class BudgetUse(WireModel):
    """What was used of a budget."""

    tokens: Int64
    cost: list[MoneyAmount]
    """A sum for each currency, as far as prices are known."""
    turns: Int64 | None = None
    """Null for budgets of many threads; so is the next."""
    seconds: Int64 | None = None


class ThreadBudget(WireModel):
    """A thread's budget, and how far it is used."""

    limits: BudgetLimits
    used: BudgetUse
    percent: Int64
    """Of the limit that is used most; of what was counted, without a request that runs."""


class ThreadBudgetSetParams(WireModel):
    """Give a thread a budget; a turn that the budget has ended goes on."""

    thread_id: ThreadIdParam
    budget: BudgetLimits | None = None
    """Null removes it; absent keeps what it is."""


class ThreadBudgetSetResponse(WireModel):
    """The budget as it is now."""

    budget: ThreadBudget | None = None


BudgetScope = TypeAliasType("BudgetScope", OpenEnum[Literal["thread", "day", "folder", "home"]])
"""The requests that a budget is for: of a thread, a day, a folder and those below it, or all."""


class ThreadBudgetUpdatedNotification(WireModel):
    """A budget was set, is used by half, by 80 % or wholly, or has ended a turn."""

    thread_id: str
    """The thread whose request or client changed it."""
    turn_id: str | None = None
    scope: BudgetScope
    name: str | None = None
    """The day or the folder."""
    budget: ThreadBudget | None = None
    """Null: the thread has none any more."""
    threshold: Int64 | None = None
    """50, 80 or 100: the percentage that was just reached."""
    exceeded: bool = False
    """Whether a turn has ended, as its next request might have passed the budget."""
