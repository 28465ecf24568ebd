"""The wakes of a home: a table beside the ledger of signals, in its file. Blocking.

Source: docs/wakes.md, "On disk".
"""

import sqlite3
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import astuple
from typing import Any, Protocol

from pydantic_core import to_json

from app_server.runtime.table_pages import newest_first
from app_server.threads.wakes import (
    COLUMNS,
    COUNTED,
    KEEP_MS,
    MAX_OVER,
    OPEN,
    Look,
    StoredWake,
    WakePage,
    bounds_of,
    page_of_wakes,
    parse_wake_cursor,
)
from protocol.signals.delivery import WakeState

_NAMES = ", ".join(COLUMNS)
SCHEMA = f"""
CREATE TABLE IF NOT EXISTS wakes (
    number INTEGER PRIMARY KEY AUTOINCREMENT, {_NAMES}, UNIQUE (id)
);
CREATE INDEX IF NOT EXISTS wakes_by_thread ON wakes (thread_id, number);
CREATE INDEX IF NOT EXISTS wakes_by_time ON wakes (look_at_ms) WHERE look_at_ms IS NOT NULL;
CREATE INDEX IF NOT EXISTS wakes_waiting ON wakes (kind)
    WHERE state = 'armed' AND kind <> 'timer';
CREATE INDEX IF NOT EXISTS wakes_over ON wakes (number) WHERE NOT {OPEN};
"""
INSERT = f"INSERT INTO wakes ({_NAMES}) VALUES ({', '.join('?' * len(COLUMNS))})"
RESTORE = f"{INSERT} ON CONFLICT DO NOTHING"
"""Inserts what could be read of a damaged ledger, which may have an id twice."""
SELECT = f"SELECT {_NAMES}, number FROM wakes"
COUNTS = f"SELECT {COUNTED} FROM wakes"
_MOVE = (
    f"UPDATE wakes SET {', '.join(f'{name} = ?' for name in COLUMNS)} "
    "WHERE id = ? AND state = ? AND fires = ?"
)


class WakeFile(Protocol):
    """The file that has the table."""

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        """Lend the database; what was written is committed at the end."""


class FileWakes:
    """A table; safe to call from any worker thread."""

    def __init__(self, file: WakeFile) -> None:
        self._file = file

    def add(self, wake: StoredWake) -> None:
        """Insert an armed wake; see WakeStore.add."""
        with self._file.transaction() as database:
            _require_room(database, wake)
            database.execute("PRAGMA synchronous = FULL")
            database.execute(INSERT, _values(wake))

    def move(self, before: StoredWake, after: StoredWake) -> bool:
        """Replace a wake that is as `before` says; see WakeStore.move."""
        with self._file.transaction() as database:
            database.execute("PRAGMA synchronous = FULL")
            values = (*_values(after), before.id, before.state, before.fires)
            return database.execute(_MOVE, values).rowcount > 0

    def find(self, wake_id: str) -> StoredWake | None:
        """Return one wake, or None."""
        with self._file.transaction() as database:
            row = database.execute(f"{SELECT} WHERE id = ?", (wake_id,)).fetchone()
        return None if row is None else _wake(row)

    def open_of(self, thread_ids: Sequence[str]) -> Sequence[StoredWake]:
        """Return the open wakes of some threads, in their order."""
        statement = (
            f"{SELECT} WHERE thread_id IN (SELECT value FROM json_each(?)) AND {OPEN} "
            "ORDER BY number"
        )
        with self._file.transaction() as database:
            rows = database.execute(statement, (to_json(thread_ids).decode(),)).fetchall()
        return [_wake(row) for row in rows]

    def threads_with_open(self, after: str, limit: int) -> Sequence[str]:
        """Return ids of threads that have open wakes; see WakeStore.threads_with_open."""
        with self._file.transaction() as database:
            rows = database.execute(
                f"SELECT DISTINCT thread_id FROM wakes WHERE thread_id > ? AND {OPEN} "
                "ORDER BY thread_id LIMIT ?",
                (after, limit),
            ).fetchall()
        return [thread_id for (thread_id,) in rows]

    def page(
        self, thread_id: str | None, state: WakeState | None, cursor: str | None, limit: int
    ) -> WakePage:
        """Return one page, newest first; see WakeStore.page."""
        before = None if cursor is None else parse_wake_cursor(cursor)
        equal = {"thread_id": thread_id, "state": state}
        statement, values = newest_first(f"{SELECT} WHERE true", "?", equal, before, limit)
        with self._file.transaction() as database:
            rows = database.execute(statement, values).fetchall()
        return page_of_wakes([_wake(row) for row in rows], limit)

    def look(self, now_ms: int, limit: int) -> Look:
        """Return what there is to do at a time; see WakeStore.look."""
        with self._file.transaction() as database:
            due = database.execute(
                f"{SELECT} WHERE look_at_ms <= ? ORDER BY look_at_ms LIMIT ?", (now_ms, limit)
            ).fetchall()
            (next_ms,) = database.execute(
                "SELECT min(look_at_ms) FROM wakes WHERE look_at_ms > ?", (now_ms,)
            ).fetchone()
            waiting = database.execute(
                f"{SELECT} WHERE state = 'armed' AND kind <> 'timer'"
            ).fetchall()
        return Look([_wake(row) for row in due], next_ms, [_wake(row) for row in waiting])

    def clock_set_back(self, now_ms: int) -> None:
        """Bring times near that would come much later; see WakeStore.clock_set_back."""
        with self._file.transaction() as database:
            database.execute(
                "UPDATE wakes SET at_ms = ? + every_ms, look_at_ms = ? + every_ms "
                "WHERE state = 'armed' AND look_at_ms > ? + every_ms "
                "AND (fires > 0 OR at_ms = set_at_ms + every_ms)",
                (now_ms, now_ms, now_ms),
            )
            database.execute(
                "UPDATE wakes SET look_at_ms = ? WHERE state <> 'armed' AND look_at_ms > ?",
                (now_ms, now_ms),
            )

    def forget_old(self, now_ms: int) -> int:
        """Remove what has been over for long, or is beyond the number kept; return how many."""
        with self._file.transaction() as database:
            return database.execute(
                f"DELETE FROM wakes WHERE NOT {OPEN} AND (changed_at_ms < ? OR number <= "
                f"coalesce((SELECT number FROM wakes WHERE NOT {OPEN} "
                "ORDER BY number DESC LIMIT 1 OFFSET ?), 0))",
                (now_ms - KEEP_MS, MAX_OVER),
            ).rowcount


def _require_room(database: sqlite3.Connection, wake: StoredWake) -> None:
    """Check the bounds of the thread and of the home.

    Raises:
        TooManyWakes
    """
    for bound in bounds_of(wake):
        condition = f"{bound.column} = ?" if bound.column else "true"
        (count,) = database.execute(
            f"SELECT count(*) FROM wakes WHERE {condition} AND {OPEN}", bound.values
        ).fetchone()
        bound.require(count)


def _values(wake: StoredWake) -> Sequence[Any]:
    return astuple(wake)[: len(COLUMNS)]


def _wake(row: Sequence[Any]) -> StoredWake:
    return StoredWake(**dict(zip([*COLUMNS, "number"], row, strict=True)))
