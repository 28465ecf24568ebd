"""Budgets of a day, of folders and of a home: from the settings, over what all threads have used.

Source: docs/usage.md, "Budgets of a home".
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import anyio

from app_server.config.values import Config, ConfigError, ConfigView
from app_server.models.catalogue.prices import CURRENCY, Prices, parse_amount
from app_server.threads.budgets import (
    TOKENS,
    BudgetClaim,
    BudgetsFailed,
    ClaimRefused,
    Key,
    Scope,
    SharedBudgets,
    Unknown,
)
from app_server.threads.store import ThreadLists
from app_server.threads.usage import ModelName, UsageQuery
from protocol.threads.thread import BudgetLimits, MoneyAmount


@dataclass(frozen=True, slots=True)
class ScopedLimits:
    """A budget, and the threads that share it."""

    scope: Scope
    name: str | None
    limits: BudgetLimits


def shared_limits(config: Config, day: str, cwd: str) -> Sequence[ScopedLimits]:
    """Return the budgets that a request of this day in this folder counts for.

    A table that cannot be used is left out.
    """
    found = []
    for scope, name, limits in _entries(config):
        if isinstance(limits, ConfigError):
            continue
        if scope == "day":
            found.append(ScopedLimits(scope, day, limits))
        elif scope == "home" or is_within(cwd, name or ""):
            found.append(ScopedLimits(scope, name, limits))
    return found


def broken_limits(config: Config) -> Iterator[ConfigError]:
    """Return what is wrong with tables of `[budget]`."""
    for _, _, limits in _entries(config):
        if isinstance(limits, ConfigError):
            yield limits


def is_within(folder: str, root: str) -> bool:
    """Whether a folder is another one, or below it."""
    return folder == root or folder.startswith(f"{root.rstrip('/')}/")


def _entries(config: Config) -> Iterator[tuple[Scope, str | None, BudgetLimits | ConfigError]]:
    if "budget" not in config.document:
        return
    try:
        table = config.view().at("budget")
        folders = table.at("folders")
    except ConfigError as exc:
        yield "home", None, exc
        return
    views: list[tuple[Scope, str | None, ConfigView, str]] = [
        ("day", None, table, "day"),
        ("home", None, table, "home"),
        *(("folder", name, folders, name) for name in folders.table),
    ]
    for scope, name, view, key in views:
        if key not in view:
            continue
        try:
            if scope == "folder" and not Path(key).is_absolute():
                raise view.error("a folder must be an absolute path", key)
            limits = _read_limits(view.at(key))
        except ConfigError as exc:
            yield scope, name, exc
        else:
            yield scope, None if name is None else os.path.normpath(name), limits


def _read_limits(view: ConfigView) -> BudgetLimits:
    tokens, currency, cost = view.integer("tokens"), view.string("currency"), view.table.get("cost")
    if tokens == 0:
        raise view.error("a budget must be at least 1", "tokens")
    if cost is None:
        return BudgetLimits(tokens=tokens)
    is_number = isinstance(cost, int | float | str) and not isinstance(cost, bool)
    # The shortest text of a float is what its author wrote.
    text = f"{Decimal(str(cost)):f}" if isinstance(cost, float) else str(cost)
    if not is_number or not parse_amount(text):
        rule = "a budget must be a number, or the text of one, above 0, with at most nine decimals"
        raise view.error(rule, "cost")
    if currency is None or not CURRENCY.fullmatch(currency):
        rule = "`currency` must be three capital letters, such as `USD`"
        raise view.error(rule, None if currency is None else "currency")
    return BudgetLimits(tokens=tokens, cost=MoneyAmount(currency=currency, amount=text))


@dataclass(slots=True)
class HomeBudgets:
    """The budgets that all threads of a server share with those of others."""

    store: SharedBudgets
    lists: ThreadLists
    unbounded: set[ModelName] = field(default_factory=set, init=False)
    """Models whose provider has refused a bound of their responses since this server started."""
    _seeded: set[Key] = field(default_factory=set, init=False)
    """Limits of which the store has what the ledger had since this server started."""
    _seeding: anyio.Lock = field(default_factory=anyio.Lock, init=False)

    async def reserve(
        self, request_id: str, claims: Sequence[BudgetClaim], most: int, prices: Prices
    ) -> int | ClaimRefused:
        """Reserve what a request may take; see SharedBudgets.reserve.

        Raises:
            BudgetsFailed: it cannot be known how far a budget is used.
        """
        try:
            return await self._reserve(request_id, claims, most, prices)
        except OSError as exc:
            text = f"budgets of the home cannot be used: {exc.strerror or exc}"
            raise BudgetsFailed(exc.errno, text) from exc

    async def _reserve(
        self, request_id: str, claims: Sequence[BudgetClaim], most: int, prices: Prices
    ) -> int | ClaimRefused:
        async with self._seeding:
            await self._seed([one for one in claims if one.key not in self._seeded], prices)
        granted = await self.store.reserve(request_id, claims, most)
        if isinstance(granted, Unknown):
            # What the store had is lost.
            await self._seed(granted.claims, prices)
            granted = await self.store.reserve(request_id, claims, most)
        if isinstance(granted, Unknown):
            raise OSError("they are lost again and again")
        return granted

    async def _seed(self, claims: Sequence[BudgetClaim], prices: Prices) -> None:
        if not claims:
            return
        amounts = [(claim, await self._counted(claim, prices)) for claim in claims]
        await self.store.seed(amounts)
        self._seeded.update(claim.key for claim in claims)

    async def _counted(self, claim: BudgetClaim, prices: Prices) -> int:
        day = claim.name if claim.scope == "day" else None
        sums = await self.lists.usage(UsageQuery("folder", since=day, until=day))
        counted = 0
        for folder, models in sums.items():
            if claim.scope == "folder" and not is_within(folder, claim.name or ""):
                continue
            for name, usage in models.items():
                if claim.unit == TOKENS:
                    counted += usage.tokens
                elif (price := prices.find(name)) is not None and price.currency == claim.unit:
                    counted += price.cost(usage)
        return counted
