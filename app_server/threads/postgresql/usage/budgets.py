"""Budgets in the table of spending: whoever reserves holds the rows of its limits until then.

Source: docs/usage.md, "Budgets of a home".
"""

from collections.abc import Sequence
from functools import partial

import anyio.to_thread

from app_server.threads.budgets import BudgetClaim, ClaimRefused, Key, Unknown, decide, stored
from app_server.threads.postgresql.database import Connection, Database, storable

_LOCK = """
SELECT amount FROM spending
WHERE scope = %s AND name = %s AND unit = %s AND request_id = '' FOR UPDATE
"""
_USED = "SELECT sum(amount)::bigint FROM spending WHERE scope = %s AND name = %s AND unit = %s"
_RESERVE = """
INSERT INTO spending (scope, name, unit, request_id, amount) VALUES (%s, %s, %s, %s, %s)
"""
_SEED = """
INSERT INTO spending (scope, name, unit, request_id, amount) VALUES (%s, %s, %s, '', %s)
ON CONFLICT (tenant, scope, name, unit, request_id)
DO UPDATE SET amount = greatest(spending.amount, excluded.amount)
"""
_ADD = """
INSERT INTO spending (scope, name, unit, request_id, amount) VALUES (%s, %s, %s, '', %s)
ON CONFLICT (tenant, scope, name, unit, request_id)
DO UPDATE SET amount = spending.amount + excluded.amount RETURNING amount
"""
_GIVE_BACK = "DELETE FROM spending WHERE request_id = %s"
_FORGET_DAYS = (
    "DELETE FROM spending WHERE scope = 'day' AND name < to_char(%s::date - 7, 'YYYY-MM-DD')"
)


class PostgresBudgets:
    """The table; all servers of the database share it."""

    def __init__(self, database: Database) -> None:
        """Take the database, which the store of threads opens and closes."""
        self._database = database

    async def reserve(
        self, request_id: str, claims: Sequence[BudgetClaim], most: int
    ) -> int | ClaimRefused | Unknown:
        """Reserve what a request may take; see SharedBudgets.reserve."""
        return await anyio.to_thread.run_sync(self._reserve, request_id, claims, most)

    def _reserve(
        self, request_id: str, claims: Sequence[BudgetClaim], most: int
    ) -> int | ClaimRefused | Unknown:
        with self._database.transaction() as connection:
            used: dict[Key, int] = {}
            # In one order, so that nobody waits for somebody who waits.
            for claim in _in_order(claims):
                if connection.execute(_LOCK, _key(claim)).fetchone() is not None:
                    used[claim.key] = _one(connection, _USED, claim)
            granted = decide(claims, used, most)
            if isinstance(granted, int):
                for claim in claims:
                    amount = stored(claim.unit, claim.amount(granted))
                    connection.execute(_RESERVE, (*_key(claim), request_id, amount))
            return granted

    async def seed(self, amounts: Sequence[tuple[BudgetClaim, int]]) -> None:
        """Note how far limits are used at least; see SharedBudgets.seed."""
        await anyio.to_thread.run_sync(self._seed, amounts)

    def _seed(self, amounts: Sequence[tuple[BudgetClaim, int]]) -> None:
        with self._database.transaction() as connection:
            for claim, amount in sorted(amounts, key=lambda one: one[0].key):
                connection.execute(_SEED, (*_key(claim), stored(claim.unit, amount)))
                if claim.scope == "day":
                    connection.execute(_FORGET_DAYS, (claim.name,))

    async def settle(
        self, request_id: str, amounts: Sequence[tuple[BudgetClaim, int]]
    ) -> Sequence[tuple[int, int]]:
        """Put what was used in the place of what was reserved; see SharedBudgets.settle."""
        return await anyio.to_thread.run_sync(partial(self._settle, request_id, amounts))

    def _settle(
        self, request_id: str, amounts: Sequence[tuple[BudgetClaim, int]]
    ) -> Sequence[tuple[int, int]]:
        after: dict[Key, tuple[int, int]] = {}
        with self._database.transaction() as connection:
            for claim, amount in sorted(amounts, key=lambda one: one[0].key):
                added = stored(claim.unit, amount)
                spent = _one(connection, _ADD, claim, added)
                after[claim.key] = spent - added, spent
            connection.execute(_GIVE_BACK, (request_id,))
        return [after[claim.key] for claim, _ in amounts]


def _in_order(claims: Sequence[BudgetClaim]) -> Sequence[BudgetClaim]:
    return sorted(claims, key=lambda claim: claim.key)


def _key(claim: BudgetClaim) -> tuple[str, str, str]:
    scope, name, unit = claim.key
    return scope, str(storable(name)), unit


def _one(connection: Connection, statement: str, claim: BudgetClaim, *more: int) -> int:
    row = connection.execute(statement.encode(), (*_key(claim), *more)).fetchone()
    return 0 if row is None else int(row[0] or 0)
