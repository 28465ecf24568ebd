"""The ledger of signals in the database. Blocks, but for opening it.

Source: docs/signals.md, "Ledger".
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from typing import Any

import anyio.to_thread
from pydantic_core import to_json

from app_server.runtime.table_pages import newest_first
from app_server.threads.ledger import (
    KEEP_MS,
    LOGGED_STAGES,
    MAX_OVER,
    Entry,
    EntryPage,
    page_of_entries,
    parse_entry_cursor,
)
from app_server.threads.postgresql.database import Connection, Database, storable
from app_server.threads.postgresql.signals.version import bump
from app_server.threads.postgresql.signals.wakes import PostgresWakes
from protocol.signals.delivery import OPEN_STAGES, SignalStage

_COLUMNS = [column.name for column in fields(Entry) if column.name != "number"]
_NAMES = ", ".join(_COLUMNS)
_OPEN = f"signals.stage IN ({', '.join(repr(stage) for stage in OPEN_STAGES)})"
_SELECT = f"SELECT {_NAMES}, number FROM signals WHERE tenant = (SELECT current_tenant())"


def _place(column: str) -> str:
    """Say in SQL how far along the log a stage is; 0 where it is not in the log."""
    cases = " ".join(f"WHEN '{stage}' THEN {n}" for n, stage in enumerate(LOGGED_STAGES, 1))
    return f"CASE {column} {cases} ELSE 0 END"


# What a log says wins over all but what it said later; else only what is open is ended.
_PUT = (
    f"INSERT INTO signals ({_NAMES}) VALUES ({', '.join(['%s'] * len(_COLUMNS))}) "
    f"ON CONFLICT (tenant, source, id) DO UPDATE SET "
    f"{', '.join(f'{name} = excluded.{name}' for name in _COLUMNS[2:])} "
    f"WHERE CASE WHEN {_place('excluded.stage')} > 0 "
    f"THEN {_place('excluded.stage')} >= {_place('signals.stage')} "
    f"ELSE excluded.stage <> 'accepted' AND {_OPEN} END"
)

MOVED = f"""
UPDATE signals SET stage = 'inHistory', item = '', item_id = given.item_id
FROM json_to_recordset(%b::json) AS given (source text, id text, item_id text)
WHERE signals.tenant = (SELECT current_tenant()) AND signals.source = given.source
    AND signals.id = given.id AND {_OPEN} AND {_place("signals.stage")} = 0
"""
"""Moves signals that come into a history; takes what `moves_of` makes."""


def moves_of(marks: Sequence[Mapping[str, str]]) -> str:
    """Render the source, id and item id of signals for `MOVED`."""
    return to_json(marks).decode()


class PostgresSignals:
    """The ledger of a database; it is always there."""

    def __init__(self, database: Database) -> None:
        """Take the database, which the store of threads opens and closes."""
        self._database = database

    async def exists(self) -> bool:
        """Whether any server has begun the ledger."""
        return await anyio.to_thread.run_sync(self._exists)

    def _exists(self) -> bool:
        with self._database.connection() as connection:
            return connection.execute("SELECT 1 FROM ledgers").fetchone() is not None

    async def open(self) -> "PostgresLedger":
        """Open the ledger, or begin it."""
        return await anyio.to_thread.run_sync(PostgresLedger, self._database)


class PostgresLedger:
    """Signals in a table; every method raises StoreUnavailable."""

    def __init__(self, database: Database, *, max_over: int = MAX_OVER) -> None:
        """Of the signals that are over the newest `max_over` are kept."""
        self._database = database
        self._max_over = max_over
        self.wakes = PostgresWakes(database)
        with self._database.transaction() as connection:
            bump(connection)

    def put(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Insert entries, or move those that are there; see SignalLedger.put."""
        ahead = []
        with self._database.transaction() as connection:
            # In one order, so that two servers never wait for each other.
            for entry in sorted(entries, key=lambda entry: entry.key):
                values = list(map(storable, astuple(entry)[: len(_COLUMNS)]))
                if connection.execute(_PUT, values).rowcount == 0:
                    row = _row(connection, *entry.key)
                    ahead.append(_entry(row))
            if entries:
                bump(connection)
        return ahead

    def find(self, source: str, signal_id: str) -> Entry | None:
        """Return one entry, or None."""
        with self._database.connection() as connection:
            row = _row(connection, source, signal_id)
        return None if row is None else _entry(row)

    def version(self) -> object:
        """Return a value that differs once any server has written."""
        with self._database.connection() as connection:
            return connection.execute("SELECT version FROM ledgers").fetchone()

    def open_entries(self, thread_id: str | None = None) -> list[Entry]:
        """Return the entries, perhaps of one thread, that may still change, in their order."""
        of_thread = "" if thread_id is None else " AND thread_id = %s"
        statement = f"{_SELECT} AND {_OPEN}{of_thread} ORDER BY number"
        with self._database.connection() as connection:
            values = [] if thread_id is None else [thread_id]
            return [_entry(row) for row in connection.execute(statement.encode(), values)]

    def stages(self) -> dict[str, int]:
        """Count the entries by stage; stages without any are left out."""
        with self._database.connection() as connection:
            found = connection.execute("SELECT stage, count(*) FROM signals GROUP BY stage")
            return dict(found.fetchall())

    def turns_woken_since(self, thread_id: str, source: str, at_ms: int, now_ms: int) -> int:
        """Count the turns of a thread that one source has begun since a time, up to now."""
        with self._database.connection() as connection:
            found = connection.execute(
                "SELECT count(DISTINCT coalesce(turn_id, id)) FROM signals "
                "WHERE tenant = (SELECT current_tenant()) AND thread_id = %s AND source = %s "
                "AND woken_at_ms > %s AND woken_at_ms <= %s",
                (thread_id, source, at_ms, now_ms),
            ).fetchone()
        return 0 if found is None else int(found[0])

    def page(
        self, thread_id: str | None, stage: SignalStage | None, cursor: str | None, limit: int
    ) -> EntryPage:
        """Return one page, newest first.

        Raises:
            InvalidCursor
        """
        before = None if cursor is None else parse_entry_cursor(cursor)
        equal = {"thread_id": thread_id, "stage": stage}
        statement, values = newest_first(_SELECT, "%s", equal, before, limit)
        with self._database.connection() as connection:
            found = connection.execute(statement.encode(), values)
            return page_of_entries([_entry(row) for row in found], limit)

    def forget_old(self, now_ms: int) -> int:
        """Remove what has been over for long, or is beyond the number kept; return how many."""
        with self._database.transaction() as connection:
            return connection.execute(
                f"DELETE FROM signals WHERE NOT {_OPEN} AND (at_ms < %s OR number <= "
                f"coalesce((SELECT number FROM signals WHERE NOT {_OPEN} "
                "ORDER BY number DESC LIMIT 1 OFFSET %s), 0))",
                (now_ms - KEEP_MS, self._max_over),
            ).rowcount

    def close(self) -> None:
        """Do nothing: the store of threads closes the database."""


def _row(connection: Connection, source: str, signal_id: str) -> Any:
    statement = f"{_SELECT} AND source = %s AND id = %s"
    return connection.execute(statement.encode(), (source, signal_id)).fetchone()


def _entry(row: Sequence[Any]) -> Entry:
    return Entry(**dict(zip([*_COLUMNS, "number"], row, strict=True)))
