"""What the demo router keeps: signals on their way to sessions, in a SQLite file. Blocks.

Source: docs/receiver.md, "The demo router".
"""

import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from app_server.clients.receiver.ledger.sqlite_file import SqliteFile, open_file, read_number

MAX_WAITING = 1000
"""Signals of one session that it has not acknowledged; the next one is refused."""

MAX_KNOWN = 10_000
"""Acknowledged signals of one session whose ids are remembered, so that none is taken twice."""

_SCHEMA = """
CREATE TABLE IF NOT EXISTS signals (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    session TEXT NOT NULL,
    id TEXT NOT NULL,
    body BLOB,
    acked INTEGER NOT NULL DEFAULT 0,
    UNIQUE (session, id)
);
CREATE INDEX IF NOT EXISTS by_session ON signals (session, acked, place);
CREATE TABLE IF NOT EXISTS epoch (one INTEGER PRIMARY KEY CHECK (one = 1), value TEXT NOT NULL);
"""


class QueueFull(Exception):
    """A session has not acknowledged as many signals as may wait."""


class RouterStore:
    """The signals of all sessions. Use `open_store`."""

    def __init__(self, file: SqliteFile, epoch: str) -> None:
        self._file = file
        self._epoch = epoch

    def add(self, session: str, signal_id: str, body: bytes) -> bool:
        """Keep a signal for a session; False if it has had one with this id.

        Raises:
            QueueFull
        """
        with self._file.transaction() as sql:
            known = "SELECT count(*) FROM signals WHERE session = ? AND id = ?"
            if read_number(sql, known, session, signal_id):
                return False
            waiting = "SELECT count(*) FROM signals WHERE session = ? AND acked = 0"
            if read_number(sql, waiting, session) >= MAX_WAITING:
                raise QueueFull
            sql.execute(
                "INSERT INTO signals (session, id, body) VALUES (?, ?, ?)",
                (session, signal_id, body),
            )
            return True

    def waiting(self, session: str, after: int, limit: int) -> Sequence[tuple[int, bytes]]:
        """Return places and bodies of signals that were not acknowledged, the oldest first."""
        with self._file.transaction() as sql:
            return sql.execute(
                "SELECT place, body FROM signals WHERE session = ? AND acked = 0"
                " AND place > ? ORDER BY place LIMIT ?",
                (session, after, limit),
            ).fetchall()

    def acknowledge(self, session: str, cursor: str) -> None:
        """Let go of everything up to a cursor; one of another store means nothing."""
        place = self._place(cursor)
        if place is None:
            return
        with self._file.transaction() as sql:
            sql.execute(
                "UPDATE signals SET acked = 1, body = NULL"
                " WHERE session = ? AND acked = 0 AND place <= ?",
                (session, place),
            )
            sql.execute(
                "DELETE FROM signals WHERE session = ? AND acked = 1 AND place <= (SELECT place"
                " FROM signals WHERE session = ? AND acked = 1"
                " ORDER BY place DESC LIMIT 1 OFFSET ?)",
                (session, session, MAX_KNOWN),
            )

    def cursor(self, place: int) -> str:
        """Return the cursor of a place."""
        return f"{self._epoch}.{place}"

    def _place(self, cursor: str) -> int | None:
        epoch, _, place = cursor.rpartition(".")
        return int(place) if epoch == self._epoch and place.isdecimal() else None


@contextmanager
def open_store(path: Path) -> Iterator[RouterStore]:
    """Open a store, for its owner alone, or make it.

    Raises:
        OSError, sqlite3.Error: it cannot be used.
    """
    with open_file(path) as file:
        with file.transaction() as sql:
            for statement in _SCHEMA.split(";"):
                sql.execute(statement)
            sql.execute("INSERT OR IGNORE INTO epoch VALUES (1, ?)", (secrets.token_hex(8),))
            epoch = sql.execute("SELECT value FROM epoch").fetchone()[0]
        yield RouterStore(file, epoch)
