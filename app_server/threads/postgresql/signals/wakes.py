"""The wakes of threads in the database. Blocks.

Source: docs/wakes.md, "On disk".
"""

from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

from app_server.runtime.table_pages import newest_first
from app_server.threads.postgresql.database import Connection, Database, storable
from app_server.threads.postgresql.signals.version import bump
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
_OWN = "tenant = (SELECT current_tenant())"
_SELECT = f"SELECT {_NAMES}, number FROM wakes WHERE {_OWN}"
COUNTS = f"SELECT {COUNTED} FROM wakes WHERE {_OWN}"
_INSERT = f"INSERT INTO wakes ({_NAMES}) VALUES ({', '.join(['%s'] * len(COLUMNS))})"
_MOVE = (
    f"UPDATE wakes SET {', '.join(f'{name} = %s' for name in COLUMNS)} "
    f"WHERE {_OWN} AND id = %s AND state = %s AND fires = %s"
)
_REPEATED_BACK = (
    f"UPDATE wakes SET at_ms = %s + every_ms, look_at_ms = %s + every_ms WHERE {_OWN} "
    "AND state = 'armed' AND look_at_ms > %s + every_ms "
    "AND (fires > 0 OR at_ms = set_at_ms + every_ms)"
)
_TRIED_BACK = (
    f"UPDATE wakes SET look_at_ms = %s WHERE {_OWN} AND state <> 'armed' AND look_at_ms > %s"
)


class PostgresWakes:
    """Wakes in a table; every method raises StoreUnavailable."""

    def __init__(self, database: Database) -> None:
        """Take the database, which the store of threads opens and closes."""
        self._database = database

    def add(self, wake: StoredWake) -> None:
        """Insert an armed wake; see WakeStore.add."""
        with self._database.transaction() as connection:
            _require_room(connection, wake)
            connection.execute(_INSERT.encode(), _values(wake))
            bump(connection)

    def move(self, before: StoredWake, after: StoredWake) -> bool:
        """Replace a wake that is as `before` says; see WakeStore.move."""
        values = [*_values(after), before.id, before.state, before.fires]
        with self._database.transaction() as connection:
            if connection.execute(_MOVE.encode(), values).rowcount == 0:
                return False
            if (after.state, after.fires) != (before.state, before.fires):
                bump(connection)
        return True

    def find(self, wake_id: str) -> StoredWake | None:
        """Return one wake, or None."""
        with self._database.connection() as connection:
            row = connection.execute(f"{_SELECT} AND id = %s".encode(), (wake_id,)).fetchone()
        return None if row is None else _wake(row)

    def open_of(self, thread_ids: Sequence[str]) -> Sequence[StoredWake]:
        """Return the open wakes of some threads, in their order."""
        statement = f"{_SELECT} AND thread_id = ANY(%s) AND {OPEN} ORDER BY number"
        with self._database.connection() as connection:
            return [
                _wake(row) for row in connection.execute(statement.encode(), [list(thread_ids)])
            ]

    def threads_with_open(self, after: str, limit: int) -> Sequence[str]:
        """Return ids of threads that have open wakes; see WakeStore.threads_with_open."""
        statement = (
            f"SELECT DISTINCT thread_id FROM wakes WHERE {_OWN} AND thread_id > %s AND {OPEN} "
            "ORDER BY thread_id LIMIT %s"
        )
        with self._database.connection() as connection:
            return [row[0] for row in connection.execute(statement.encode(), (after, limit))]

    def page(
        self, thread_id: str | None, state: WakeState | None, cursor: str | None, limit: int
    ) -> WakePage:
        """Return one page, newest first; see WakeStore.page."""
        before = None if cursor is None else parse_wake_cursor(cursor)
        equal = {"thread_id": thread_id, "state": state}
        statement, values = newest_first(_SELECT, "%s", equal, before, limit)
        with self._database.connection() as connection:
            found = connection.execute(statement.encode(), values)
            return page_of_wakes([_wake(row) for row in found], limit)

    def look(self, now_ms: int, limit: int) -> Look:
        """Return what there is to do at a time; see WakeStore.look."""
        with self._database.connection() as connection:
            due = connection.execute(
                f"{_SELECT} AND look_at_ms <= %s ORDER BY look_at_ms LIMIT %s".encode(),
                (now_ms, limit),
            ).fetchall()
            next_ms = _one(
                connection,
                f"SELECT min(look_at_ms) FROM wakes WHERE {_OWN} AND look_at_ms > %s",
                (now_ms,),
            )
            waiting = connection.execute(
                f"{_SELECT} AND state = 'armed' AND kind <> 'timer'".encode()
            ).fetchall()
        return Look([_wake(row) for row in due], next_ms, [_wake(row) for row in waiting])

    def clock_set_back(self, now_ms: int) -> None:
        """Bring times near that would come much later; see WakeStore.clock_set_back."""
        with self._database.transaction() as connection:
            connection.execute(_REPEATED_BACK.encode(), (now_ms, now_ms, now_ms))
            connection.execute(_TRIED_BACK.encode(), (now_ms, now_ms))

    def forget_old(self, now_ms: int) -> int:
        """Remove what has been over for long, or is beyond the number kept; return how many."""
        statement = (
            f"DELETE FROM wakes WHERE {_OWN} AND NOT {OPEN} AND (changed_at_ms < %s OR number <= "
            f"coalesce((SELECT number FROM wakes WHERE {_OWN} AND NOT {OPEN} "
            "ORDER BY number DESC LIMIT 1 OFFSET %s), 0))"
        )
        with self._database.transaction() as connection:
            values = (now_ms - KEEP_MS, MAX_OVER)
            return connection.execute(statement.encode(), values).rowcount


def _require_room(connection: Connection, wake: StoredWake) -> None:
    """Check the bounds of the thread and of the database.

    Raises:
        TooManyWakes
    """
    for bound in bounds_of(wake):
        condition = f"{bound.column} = %s" if bound.column else "true"
        statement = f"SELECT count(*) FROM wakes WHERE {_OWN} AND {condition} AND {OPEN}"
        bound.require(_one(connection, statement, bound.values) or 0)


def _one(connection: Connection, statement: str, values: Sequence[Any]) -> int | None:
    row = connection.execute(statement.encode(), list(values)).fetchone()
    return None if row is None or row[0] is None else int(row[0])


def _values(wake: StoredWake) -> list[Any]:
    return [storable(value) for value in astuple(wake)[: len(COLUMNS)]]


def _wake(row: Sequence[Any]) -> StoredWake:
    return StoredWake(**dict(zip([*COLUMNS, "number"], row, strict=True)))
