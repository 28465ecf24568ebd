"""Budgets that the threads of a home share, in a SQLite file that its servers share.

Source: docs/usage.md, "Budgets of a home".
"""

import logging
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import anyio.to_thread

from app_server.runtime.files.sqlite import as_disk_failures, connect, is_damage, set_aside
from app_server.threads.budgets import BudgetClaim, ClaimRefused, Unknown, decide, stored

logger = logging.getLogger(__name__)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS spending (scope, name, unit, request_id, amount INTEGER,
    PRIMARY KEY (scope, name, unit, request_id)) WITHOUT ROWID
"""
SETTLED = ""
"""The id of the row that has what settled requests have used."""
_USED = "SELECT sum(amount) FROM spending WHERE scope = ? AND name = ? AND unit = ?"
_SPENT = f"{_USED} AND request_id = '{SETTLED}'"
_RESERVE = "INSERT INTO spending VALUES (?, ?, ?, ?, ?)"
_SEED = f"""
INSERT INTO spending VALUES (?, ?, ?, '{SETTLED}', ?)
ON CONFLICT DO UPDATE SET amount = max(amount, excluded.amount)
"""
_ADD = f"""
INSERT INTO spending VALUES (?, ?, ?, '{SETTLED}', ?)
ON CONFLICT DO UPDATE SET amount = amount + excluded.amount
"""
_GIVE_BACK = "DELETE FROM spending WHERE request_id = ?"
_FORGET_DAYS = "DELETE FROM spending WHERE scope = 'day' AND name < date(?, '-7 days')"


class FileBudgets:
    """The file; it is made with the first budget that threads share."""

    def __init__(self, home: Path) -> None:
        self._path = home / "budgets.sqlite3"
        self._lock = threading.Lock()

    async def reserve(
        self, request_id: str, claims: Sequence[BudgetClaim], most: int
    ) -> int | ClaimRefused | Unknown:
        """Reserve what a request may take; see SharedBudgets.reserve."""
        return await anyio.to_thread.run_sync(self._reserve, request_id, claims, most)

    def _reserve(
        self, request_id: str, claims: Sequence[BudgetClaim], most: int
    ) -> int | ClaimRefused | Unknown:
        with self._writing() as database:
            used = {
                claim.key: amount
                for claim in claims
                if (amount := database.execute(_USED, claim.key).fetchone()[0]) is not None
            }
            granted = decide(claims, used, most)
            if isinstance(granted, int):
                for claim in claims:
                    amount = stored(claim.unit, claim.amount(granted))
                    database.execute(_RESERVE, (*claim.key, request_id, amount))
            return granted

    async def seed(self, amounts: Sequence[tuple[BudgetClaim, int]]) -> None:
        """Note how far limits are used at least; see SharedBudgets.seed."""
        await anyio.to_thread.run_sync(self._seed, amounts)

    def _seed(self, amounts: Sequence[tuple[BudgetClaim, int]]) -> None:
        with self._writing() as database:
            for claim, amount in amounts:
                database.execute(_SEED, (*claim.key, stored(claim.unit, amount)))
                if claim.scope == "day":
                    database.execute(_FORGET_DAYS, (claim.name,))

    async def settle(
        self, request_id: str, amounts: Sequence[tuple[BudgetClaim, int]]
    ) -> Sequence[tuple[int, int]]:
        """Put what was used in the place of what was reserved; see SharedBudgets.settle."""
        settle = partial(self._settle, request_id, amounts)
        return await anyio.to_thread.run_sync(settle)

    def _settle(
        self, request_id: str, amounts: Sequence[tuple[BudgetClaim, int]]
    ) -> Sequence[tuple[int, int]]:
        changes: list[tuple[int, int]] = []
        with self._writing() as database:
            database.execute(_GIVE_BACK, (request_id,))
            for claim, amount in amounts:
                added = stored(claim.unit, amount)
                before = database.execute(_SPENT, claim.key).fetchone()[0] or 0
                database.execute(_ADD, (*claim.key, added))
                changes.append((before, before + added))
        return changes

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Open the file for one transaction; a damaged one fails it, and another one begins."""
        with self._lock, as_disk_failures(OSError):
            try:
                with closing(
                    connect(self._path, synchronous="NORMAL", autocommit=True)
                ) as database:
                    database.execute("BEGIN IMMEDIATE")
                    database.execute(_SCHEMA)
                    yield database
                    database.execute("COMMIT")
            except (sqlite3.Error, UnicodeDecodeError) as exc:
                if is_damage(exc, self._path):
                    kept = set_aside(self._path)
                    logger.error(
                        "the file of budgets is damaged (%s) and kept as %s: what is used of them "
                        "is taken from the ledger",
                        exc,
                        kept,
                    )
                raise
