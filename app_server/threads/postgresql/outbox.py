"""The outbox of notifications in the database. Blocks, but for opening it.

Source: docs/notifications.md, "Outbox".
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

import anyio.to_thread

from app_server.runtime.table_pages import newest_first
from app_server.threads.outbox import (
    CLAIM_MS,
    COLUMNS,
    EXPIRE_MS,
    EXPIRED,
    KEEP_DEAD_MS,
    KEEP_DELIVERED_MS,
    MAX_ENDED,
    MAX_WAITING,
    Claim,
    Claimed,
    OutboxEntry,
    OutboxPage,
    OutboxState,
    page_of_outbox,
    parse_outbox_cursor,
)
from app_server.threads.postgresql.database import Connection, Database, storable

_NAMES = ", ".join(COLUMNS)
_OWN = "tenant = (SELECT current_tenant())"
_SELECT = f"SELECT {_NAMES}, number FROM notifications WHERE {_OWN}"
_PUT = (
    f"INSERT INTO notifications ({_NAMES}, holder, claimed_until_ms) "
    f"VALUES ({', '.join(['%s'] * len(COLUMNS))}, %s, %s) ON CONFLICT DO NOTHING"
)
_WAITING = (
    f"SELECT count(*) FROM (SELECT 1 FROM notifications WHERE {_OWN} AND state = 'waiting' "
    f"LIMIT {MAX_WAITING}) AS waiting"
)
_CLOSE = (
    f"UPDATE notifications SET is_open = false WHERE {_OWN} AND is_open AND thread_id = %s "
    "AND subject = %s"
)
_NOTE_RUN = (
    "INSERT INTO notification_runs AS known (id, at_ms) VALUES (%s, %s) "
    "ON CONFLICT (tenant, id) DO UPDATE SET at_ms = greatest(known.at_ms, excluded.at_ms)"
)
_SETTLE = (
    "UPDATE notifications SET state = %s, attempts = %s, next_at_ms = %s, ended_at_ms = %s, "
    f"error = %s, body = %s, holder = NULL, claimed_until_ms = 0 WHERE {_OWN} AND target = %s "
    "AND id = %s AND state = 'waiting'"
)
_BURY = (
    "UPDATE notifications SET state = 'dead', ended_at_ms = %s, error = %s "
    f"WHERE {_OWN} AND state = 'waiting'"
)
_HEADS = (
    f"SELECT min(number) FROM notifications WHERE {_OWN} AND state = 'waiting' "
    "AND target = ANY(%s) GROUP BY target, thread_id"
)
# Of two servers that claim at once the second passes over what the first one takes.
_CLAIM = (
    f"UPDATE notifications SET holder = %s, claimed_until_ms = %s WHERE {_OWN} AND number IN ("
    f"SELECT number FROM notifications WHERE {_OWN} AND number IN ({_HEADS}) "
    "AND state = 'waiting' AND next_at_ms <= %s AND (claimed_until_ms <= %s OR holder = %s) "
    f"ORDER BY number LIMIT %s FOR UPDATE SKIP LOCKED) RETURNING {_NAMES}, number"
)
_NEXT = (
    "SELECT min(greatest(next_at_ms, CASE WHEN holder = %s THEN 0 ELSE claimed_until_ms END)) "
    f"FROM notifications WHERE {_OWN} AND number IN ({_HEADS}) "
    "AND (next_at_ms > %s OR (claimed_until_ms > %s AND holder <> %s))"
)
_FORGET = (
    f"DELETE FROM notifications WHERE {_OWN} AND NOT is_open AND ("
    "(state = 'delivered' AND ended_at_ms < %s) OR (state = 'dead' AND ended_at_ms < %s) OR "
    "(state <> 'waiting' AND number <= coalesce((SELECT number FROM notifications "
    f"WHERE {_OWN} AND state <> 'waiting' ORDER BY number DESC LIMIT 1 OFFSET %s), 0)))"
)


DEAD_LETTERS = (
    f"SELECT label, count(*) FROM notifications WHERE {_OWN} AND state = 'dead' "
    "GROUP BY label ORDER BY label"
)
DISABLED = (
    "SELECT coalesce((SELECT label FROM notifications WHERE target = ended.target LIMIT 1), "
    "ended.target), ended.reason FROM notification_targets_disabled AS ended ORDER BY 1"
)


class PostgresNotifications:
    """The outbox of a database; it is always there."""

    def __init__(self, database: Database) -> None:
        """Take the database, which the store of threads opens and closes."""
        self._database = database

    async def exists(self) -> bool:
        """Whether any server has begun the outbox: whether it has entries or runs."""
        return await anyio.to_thread.run_sync(self._exists)

    def _exists(self) -> bool:
        with self._database.connection() as connection:
            found = connection.execute(
                "SELECT 1 FROM notification_runs UNION ALL "
                "(SELECT 1 FROM notifications LIMIT 1) LIMIT 1"
            )
            return found.fetchone() is not None

    async def open(self) -> "PostgresOutbox":
        """Open the outbox."""
        return PostgresOutbox(self._database)


class PostgresOutbox:
    """Notifications in a table; every method raises StoreUnavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def put(self, entries: Sequence[OutboxEntry], run: str, at_ms: int) -> int:
        """Insert entries; see NotificationOutbox.put."""
        dropped = 0
        with self._database.transaction() as connection:
            room = MAX_WAITING - _number(connection, _WAITING) if entries else 0
            ended = _disabled(connection) if entries else {}
            for entry in entries:
                if entry.target not in ended and room > 0:
                    values = map(storable, astuple(entry)[: len(COLUMNS)])
                    row = connection.execute(_PUT.encode(), [*values, run, at_ms + CLAIM_MS])
                    room -= row.rowcount
                elif room <= 0:
                    dropped += 1
                if entry.event == "resolved":
                    connection.execute(_CLOSE.encode(), (entry.thread_id, entry.subject))
            connection.execute(_NOTE_RUN.encode(), (run, at_ms))
        return dropped

    def advance(self, settled: Sequence[OutboxEntry], claim: Claim) -> Claimed:
        """Write outcomes and claim what is due; see NotificationOutbox.advance."""
        run, now_ms, targets = claim.run, claim.now_ms, list(claim.targets)
        with self._database.transaction() as connection:
            # In one order, so that two servers never wait for each other.
            for entry in sorted(settled, key=lambda entry: entry.key):
                connection.execute(_SETTLE.encode(), (*entry.outcome, *entry.key))
            rows = connection.execute(
                _CLAIM.encode(),
                (run, now_ms + CLAIM_MS, targets, now_ms, now_ms, run, claim.limit),
            ).fetchall()
            found = connection.execute(
                _NEXT.encode(), (run, targets, now_ms, now_ms, run)
            ).fetchone()
        entries = sorted(map(_entry, rows), key=lambda entry: entry.number or 0)
        return Claimed(entries, None if found is None else found[0])

    def disable(self, target: str, at_ms: int, reason: str) -> None:
        """End a target; see NotificationOutbox.disable."""
        with self._database.transaction() as connection:
            connection.execute(
                "INSERT INTO notification_targets_disabled (target, reason) VALUES (%s, %s) "
                "ON CONFLICT DO NOTHING",
                (target, reason),
            )
            connection.execute(f"{_BURY} AND target = %s".encode(), (at_ms, reason, target))

    def enable(self, target: str) -> None:
        """Enable a receiver again that was disabled."""
        with self._database.connection() as connection:
            connection.execute(
                f"DELETE FROM notification_targets_disabled WHERE {_OWN} AND target = %s".encode(),
                (target,),
            )

    def disabled(self) -> Mapping[str, str]:
        """Return the reason of each disabled target."""
        with self._database.connection() as connection:
            return _disabled(connection)

    def runs(self) -> Mapping[str, int]:
        """Return of each run up to when its events are in the outbox."""
        with self._database.connection() as connection:
            return dict(connection.execute("SELECT id, at_ms FROM notification_runs").fetchall())

    def end_run(self, run: str) -> None:
        """Forget a run of which nothing is missing; see NotificationOutbox.end_run."""
        with self._database.transaction() as connection:
            connection.execute(
                f"DELETE FROM notification_runs WHERE {_OWN} AND id = %s".encode(), (run,)
            )
            connection.execute(
                "UPDATE notifications SET holder = NULL, claimed_until_ms = 0 "
                f"WHERE {_OWN} AND state = 'waiting' AND holder = %s".encode(),
                (run,),
            )

    def open_questions(self) -> Sequence[OutboxEntry]:
        """Return entries about questions of which `resolved` was not put yet."""
        with self._database.connection() as connection:
            found = connection.execute(f"{_SELECT} AND is_open ORDER BY number".encode())
            return [_entry(row) for row in found]

    def counts(self) -> Mapping[OutboxState, int]:
        """Count the entries by state; states without any are left out."""
        with self._database.connection() as connection:
            found = connection.execute("SELECT state, count(*) FROM notifications GROUP BY state")
            return dict(found.fetchall())

    def page(self, state: OutboxState | None, cursor: str | None, limit: int) -> OutboxPage:
        """Return one page, newest first."""
        before = None if cursor is None else parse_outbox_cursor(cursor)
        statement, values = newest_first(_SELECT, "%s", {"state": state}, before, limit)
        with self._database.connection() as connection:
            found = connection.execute(statement.encode(), values)
            return page_of_outbox([_entry(row) for row in found], limit)

    def forget_old(self, now_ms: int) -> int:
        """End what has waited too long, remove what has been over for long."""
        with self._database.transaction() as connection:
            connection.execute(
                f"{_BURY} AND created_at_ms < %s".encode(), (now_ms, EXPIRED, now_ms - EXPIRE_MS)
            )
            return connection.execute(
                _FORGET.encode(), (now_ms - KEEP_DELIVERED_MS, now_ms - KEEP_DEAD_MS, MAX_ENDED)
            ).rowcount

    def close(self) -> None:
        """Do nothing: the store of threads closes the database."""


def _disabled(connection: Connection) -> dict[str, str]:
    found = connection.execute("SELECT target, reason FROM notification_targets_disabled")
    return dict(found.fetchall())


def _number(connection: Connection, statement: str) -> int:
    row = connection.execute(statement.encode()).fetchone()
    assert row is not None
    return int(row[0])


def _entry(row: Sequence[Any]) -> OutboxEntry:
    return OutboxEntry(**dict(zip([*COLUMNS, "number"], row, strict=True)))
