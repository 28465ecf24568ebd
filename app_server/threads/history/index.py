"""Where every turn and item of every thread stands in its log, and what was said. Blocks.

A copy, like the index of threads: of each log it covers the bytes up to a mark, and whoever reads
it lets it catch up with the log first. What it says of a log that is not the one it has seen, or
of a reverted one, is made again from the beginning.
Source: docs/architecture.md, "Threads on disk".
"""

import logging
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from app_server.runtime.files.sqlite import open_rebuildable, version_of
from app_server.threads.history.catching_up import TURN_COLUMNS, catch_up, clear, find_turn, turn_of
from app_server.threads.history.full_text import TEXT_SCHEMA
from app_server.threads.index.file import index_failures
from app_server.threads.log.file.locks import short_lock
from app_server.threads.log.outline import TurnOutline

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 3

_SCHEMA = f"""
CREATE TABLE logs (
    key INTEGER PRIMARY KEY, thread_id TEXT UNIQUE, seen INTEGER, mark INTEGER, at_ms INTEGER,
    started INTEGER, waiting TEXT
);
CREATE TABLE turns (
    key INTEGER, number INTEGER, id TEXT, started_at_ms INTEGER, status TEXT, error TEXT,
    completed_at_ms INTEGER, duration_ms INTEGER, items INTEGER, packed BLOB,
    PRIMARY KEY (key, number)
);
CREATE INDEX by_id ON turns (key, id);
CREATE TABLE copied (thread_id TEXT PRIMARY KEY, version TEXT);
{TEXT_SCHEMA}
"""


class HistoryIndex:
    """One SQLite file in WAL mode; safe to call from any worker thread."""

    def __init__(self, path: Path) -> None:
        """Open the index, or make it; one of another version is thrown away (then `is_new`).

        Raises:
            OSError: the file cannot be made.
        """
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = path
        self._lock = threading.Lock()
        # Nobody replaces the file while somebody else looks what it is.
        with index_failures(path), short_lock(path.with_name(f"{path.name}.lock")):
            self._database = open_rebuildable(path, _SCHEMA, SCHEMA_VERSION, autocommit=True)
            # Less than 0 while it is made, which several processes may do at once.
            self.is_new = version_of(self._database) < 0

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def mark_complete(self) -> None:
        """Note that every thread is in the index."""
        with self.transaction() as database:
            database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def forget(self, thread_id: str) -> None:
        """Remove all that is known of a thread."""
        with self.transaction() as database:
            found = database.execute("SELECT key FROM logs WHERE thread_id = ?", (thread_id,))
            for (key,) in found.fetchall():
                clear(database, key)
                database.execute("DELETE FROM logs WHERE key = ?", (key,))
            database.execute("DELETE FROM copied WHERE thread_id = ?", (thread_id,))

    def catch_up(self, logs: Sequence[tuple[str, Path]]) -> None:
        """Take into account what was written to logs since the last time, all in one transaction.

        A log that is not there, or cannot be read, is passed over.
        """
        with self.transaction() as database:
            for thread_id, path in logs:
                database.execute("SAVEPOINT one_log")
                try:
                    catch_up(database, thread_id, path)
                except OSError as exc:
                    database.execute("ROLLBACK TO one_log")
                    if not isinstance(exc, FileNotFoundError):
                        logger.warning("%s cannot be searched: %s", path, exc.strerror)
                database.execute("RELEASE one_log")

    def copied(self) -> dict[str, str]:
        """Return what `note_copied` was given, by thread."""
        with self.reading() as database:
            return dict(database.execute("SELECT thread_id, version FROM copied").fetchall())

    def note_copied(self, thread_id: str, version: str) -> None:
        """Note which version of a thread of another program was taken in."""
        with self.transaction() as database:
            database.execute("INSERT OR REPLACE INTO copied VALUES (?, ?)", (thread_id, version))

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Hold the file for writing, all or nothing."""
        with index_failures(self._path), self._lock, self._database:
            self._database.execute("BEGIN IMMEDIATE")
            yield self._database

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Hold the connection for reading."""
        with index_failures(self._path), self._lock:
            yield self._database

    def caught_up(self, thread_id: str, path: Path) -> tuple[int, int]:
        """Let the index catch up with one log.

        Returns its key in the index, and when it was last written, in Unix milliseconds.

        Raises:
            FileNotFoundError: there is no such log.
            OSError: it cannot be read.
        """
        with self.transaction() as database:
            progress = catch_up(database, thread_id, path)
        return progress.key, progress.at_ms

    def turns(
        self, key: int, *, below: int | None, above: int | None, limit: int
    ) -> list[TurnOutline]:
        """Return turns next to a number: downwards with `below`, else upwards with `above`.

        Both bounds are exclusive; with neither the newest turns come, newest first.
        """
        ascending = above is not None
        bound = above if above is not None else below
        where = f"AND number {'>' if ascending else '<'} {bound}" if bound is not None else ""
        with self.reading() as database:
            found = database.execute(
                f"SELECT {TURN_COLUMNS} FROM turns WHERE key = ? {where} "
                f"ORDER BY number {'ASC' if ascending else 'DESC'} LIMIT ?",
                (key, limit),
            ).fetchall()
        return [turn_of(values) for values in found]

    def turn(self, key: int, turn_id: str) -> TurnOutline | None:
        """Return a turn by its id."""
        with self.reading() as database:
            return find_turn(database, key, turn_id)
