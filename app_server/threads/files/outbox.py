"""The outbox of notifications in a SQLite file of the home. Blocking.

All servers of a home share the file. A crash loses nothing that was put; an attempt whose outcome
was not written is made again.
Source: docs/notifications.md, "Outbox".
"""

import logging
import sqlite3
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import astuple
from pathlib import Path
from typing import Any

from app_server.runtime.files.sqlite import (
    as_disk_failures,
    connect,
    damaged,
    identity,
    is_damage,
    is_obstructed,
    set_aside,
    version_of,
)
from app_server.runtime.table_pages import newest_first
from app_server.threads.files.locks import short_lock
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
    OutboxFailed,
    OutboxPage,
    OutboxState,
    page_of_outbox,
    parse_outbox_cursor,
)

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 1
OPENING_LOCK = "outbox.lock"

_NAMES = ", ".join(COLUMNS)
_SCHEMA = f"""
BEGIN;
CREATE TABLE notifications (
    number INTEGER PRIMARY KEY AUTOINCREMENT, {_NAMES},
    holder TEXT, claimed_until_ms INTEGER NOT NULL DEFAULT 0, UNIQUE (target, id)
);
CREATE INDEX waiting ON notifications (target, thread_id, number) WHERE state = 'waiting';
CREATE INDEX ended ON notifications (state, number) WHERE state <> 'waiting';
CREATE INDEX questions ON notifications (thread_id, subject) WHERE is_open;
CREATE TABLE disabled (target TEXT PRIMARY KEY, reason TEXT NOT NULL);
CREATE TABLE runs (id TEXT PRIMARY KEY, at_ms INTEGER NOT NULL);
PRAGMA user_version = {SCHEMA_VERSION};
COMMIT;
"""
_SELECT = f"SELECT {_NAMES}, number FROM notifications"
_PUT = (
    f"INSERT INTO notifications ({_NAMES}, holder, claimed_until_ms) "
    f"VALUES ({', '.join('?' * len(COLUMNS))}, ?, ?) ON CONFLICT DO NOTHING"
)
_WAITING = f"SELECT 1 FROM notifications WHERE state = 'waiting' LIMIT {MAX_WAITING}"
_CLOSE = "UPDATE notifications SET is_open = 0 WHERE is_open AND thread_id = ? AND subject = ?"
_NOTE_RUN = (
    "INSERT INTO runs VALUES (?, ?) "
    "ON CONFLICT (id) DO UPDATE SET at_ms = max(at_ms, excluded.at_ms)"
)
_SETTLE = (
    "UPDATE notifications SET state = ?, attempts = ?, next_at_ms = ?, ended_at_ms = ?, error = ?, "
    "body = ?, holder = NULL, claimed_until_ms = 0 "
    "WHERE target = ? AND id = ? AND state = 'waiting'"
)
_BURY = (
    "UPDATE notifications SET state = 'dead', ended_at_ms = ?, error = ? WHERE state = 'waiting'"
)


DEAD_LETTERS = (
    "SELECT label, count(*) FROM notifications WHERE state = 'dead' GROUP BY label ORDER BY label"
)
DISABLED = (
    "SELECT coalesce((SELECT label FROM notifications WHERE target = disabled.target), target), "
    "reason FROM disabled ORDER BY 1"
)


class FileOutbox:
    """One SQLite file; safe to call from any worker thread."""

    def __init__(self, path: Path) -> None:
        """Open the outbox, or begin it.

        Raises:
            OSError: the file cannot be used, or is of a newer version.
        """
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = path
        self._lock = threading.Lock()
        with _failures():
            self._open_file()

    def _open_file(self) -> None:
        with short_lock(self._path.with_name(OPENING_LOCK)):
            try:
                self._database = open_database(self._path)
            except (sqlite3.Error, UnicodeDecodeError) as exc:
                if not is_damage(exc, self._path) and not is_obstructed(self._path):
                    raise
                kept = set_aside(self._path)
                self._database = open_database(self._path)
                logger.error(
                    "the outbox of notifications is damaged (%s); it is kept as %s, and what "
                    "waited in it is not sent",
                    exc,
                    kept,
                )
            self._file = identity(self._path)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def put(self, entries: Sequence[OutboxEntry], run: str, at_ms: int) -> int:
        """Insert entries; see NotificationOutbox.put."""
        with self._open() as database:
            room = MAX_WAITING
            if entries:
                (waiting,) = database.execute(f"SELECT count(*) FROM ({_WAITING})").fetchone()
                room -= waiting
            ended = _disabled(database)
            dropped = 0
            for entry in entries:
                if entry.target not in ended and room > 0:
                    values = astuple(entry)[: len(COLUMNS)]
                    row = database.execute(_PUT, (*values, run, at_ms + CLAIM_MS))
                    room -= row.rowcount
                elif room <= 0:
                    dropped += 1
                if entry.event == "resolved":
                    database.execute(_CLOSE, (entry.thread_id, entry.subject))
            database.execute(_NOTE_RUN, (run, at_ms))
            return dropped

    def advance(self, settled: Sequence[OutboxEntry], claim: Claim) -> Claimed:
        """Write outcomes and claim what is due; see NotificationOutbox.advance."""
        marks = ", ".join("?" * len(claim.targets))
        heads = (
            f"SELECT min(number) FROM notifications WHERE state = 'waiting' "
            f"AND target IN ({marks}) GROUP BY target, thread_id"
        )
        with self._open() as database:
            for entry in settled:
                database.execute(_SETTLE, (*entry.outcome, *entry.key))
            rows = database.execute(
                f"{_SELECT} WHERE number IN ({heads}) AND next_at_ms <= ? "
                "AND (claimed_until_ms <= ? OR holder = ?) ORDER BY number LIMIT ?",
                (*claim.targets, claim.now_ms, claim.now_ms, claim.run, claim.limit),
            ).fetchall()
            entries = [_entry(row) for row in rows]
            for entry in entries:
                database.execute(
                    "UPDATE notifications SET holder = ?, claimed_until_ms = ? WHERE number = ?",
                    (claim.run, claim.now_ms + CLAIM_MS, entry.number),
                )
            (next_at_ms,) = database.execute(
                "SELECT min(max(next_at_ms, CASE WHEN holder = ? THEN 0 ELSE claimed_until_ms END))"
                f" FROM notifications WHERE number IN ({heads}) "
                "AND (next_at_ms > ? OR (claimed_until_ms > ? AND holder <> ?))",
                (claim.run, *claim.targets, claim.now_ms, claim.now_ms, claim.run),
            ).fetchone()
        return Claimed(entries, next_at_ms)

    def disable(self, target: str, at_ms: int, reason: str) -> None:
        """End a target; see NotificationOutbox.disable."""
        with self._open() as database:
            database.execute("INSERT OR REPLACE INTO disabled VALUES (?, ?)", (target, reason))
            database.execute(f"{_BURY} AND target = ?", (at_ms, reason, target))

    def enable(self, target: str) -> None:
        """Enable a receiver again that was disabled."""
        with self._open() as database:
            database.execute("DELETE FROM disabled WHERE target = ?", (target,))

    def disabled(self) -> Mapping[str, str]:
        """Return the reason of each disabled target."""
        with self._open() as database:
            return _disabled(database)

    def runs(self) -> Mapping[str, int]:
        """Return of each run up to when its events are in the outbox."""
        with self._open() as database:
            return dict(database.execute("SELECT id, at_ms FROM runs"))

    def end_run(self, run: str) -> None:
        """Forget a run of which nothing is missing; see NotificationOutbox.end_run."""
        with self._open() as database:
            database.execute("DELETE FROM runs WHERE id = ?", (run,))
            database.execute(
                "UPDATE notifications SET holder = NULL, claimed_until_ms = 0 "
                "WHERE state = 'waiting' AND holder = ?",
                (run,),
            )

    def open_questions(self) -> Sequence[OutboxEntry]:
        """Return entries about questions of which `resolved` was not put yet."""
        with self._open() as database:
            return [_entry(row) for row in database.execute(f"{_SELECT} WHERE is_open")]

    def counts(self) -> Mapping[OutboxState, int]:
        """Count the entries by state; states without any are left out."""
        with self._open() as database:
            return dict(
                database.execute("SELECT state, count(*) FROM notifications GROUP BY state")
            )

    def page(self, state: OutboxState | None, cursor: str | None, limit: int) -> OutboxPage:
        """Return one page, newest first."""
        before = None if cursor is None else parse_outbox_cursor(cursor)
        statement, values = newest_first(
            f"{_SELECT} WHERE true", "?", {"state": state}, before, limit
        )
        with self._open() as database:
            rows = database.execute(statement, values).fetchall()
        return page_of_outbox([_entry(row) for row in rows], limit)

    def forget_old(self, now_ms: int) -> int:
        """End what has waited too long, remove what has been over for long."""
        with self._open() as database:
            database.execute(
                f"{_BURY} AND created_at_ms < ?", (now_ms, EXPIRED, now_ms - EXPIRE_MS)
            )
            return database.execute(
                "DELETE FROM notifications WHERE NOT is_open AND "
                "((state = 'delivered' AND ended_at_ms < ?) OR (state = 'dead' AND ended_at_ms < ?)"
                " OR (state <> 'waiting' AND number <= coalesce((SELECT number FROM notifications "
                "WHERE state <> 'waiting' ORDER BY number DESC LIMIT 1 OFFSET ?), 0)))",
                (now_ms - KEEP_DELIVERED_MS, now_ms - KEEP_DEAD_MS, MAX_ENDED),
            ).rowcount

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _failures():
            if identity(self._path) != self._file:
                # Another process has set it aside, or somebody has removed it.
                self._database.close()
                self._open_file()
            try:
                with self._database:
                    yield self._database
            except (sqlite3.Error, UnicodeDecodeError) as exc:
                if is_damage(exc, self._path):
                    # The next call begins another one.
                    self._database.close()
                    self._file = None
                raise


def open_database(path: Path) -> sqlite3.Connection:
    """Open an outbox, or make its tables."""
    # What a loss of power takes is put again, as far as the logs have it.
    database = connect(path, synchronous="NORMAL")
    try:
        if version_of(database) == 0:
            database.executescript(_SCHEMA)
        version = version_of(database)
        if version < 0:
            raise damaged(f"its version is {version}")
        if version != SCHEMA_VERSION:
            raise OutboxFailed(f"the outbox of notifications has version {version}")
        database.execute(f"{_SELECT} LIMIT 1").fetchall()
    except BaseException:
        database.close()
        raise
    return database


def _failures() -> AbstractContextManager[None]:
    return as_disk_failures(lambda _, text: OutboxFailed(text))


def _disabled(database: sqlite3.Connection) -> dict[str, str]:
    return dict(database.execute("SELECT target, reason FROM disabled"))


def _entry(row: Sequence[Any]) -> OutboxEntry:
    values = dict(zip([*COLUMNS, "number"], row, strict=True))
    return OutboxEntry(**{**values, "is_open": bool(values["is_open"])})
