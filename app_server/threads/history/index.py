"""Where every turn and item of every thread stands in its log, and what was said. Blocks.

A copy, like the index of threads: of each log it covers the bytes up to a mark, and whoever reads
it lets it catch up with the log first. What it says of a log that is not the one it has seen, or
of a reverted one, is made again from the beginning.
Source: docs/architecture.md, "Threads on disk".
"""

import logging
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from app_server.runtime.files.sqlite import connect, damaged
from app_server.threads.history.catching_up import TURN_COLUMNS, catch_up, clear, find_turn, turn_of
from app_server.threads.history.full_text import SLOTS, TEXT_SCHEMA
from app_server.threads.index.derived import DerivedFile, once_more, sum_of
from app_server.threads.log.outline import TurnOutline

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 4

_SCHEMA = f"""
CREATE TABLE logs (
    key INTEGER PRIMARY KEY, thread_id TEXT UNIQUE, seen INTEGER, mark INTEGER, at_ms INTEGER,
    started INTEGER, waiting TEXT
);
CREATE TABLE turns (
    key INTEGER, number INTEGER, id TEXT, started_at_ms INTEGER, status TEXT, error TEXT,
    completed_at_ms INTEGER, duration_ms INTEGER, items INTEGER, packed BLOB,
    sum INTEGER, PRIMARY KEY (key, number)
);
CREATE INDEX by_id ON turns (key, id);
CREATE TABLE copied (thread_id TEXT PRIMARY KEY, version TEXT);
{TEXT_SCHEMA}
"""

_PAGES_WITHOUT_TEXT = f"""
SELECT 1 FROM pages WHERE NOT EXISTS
(SELECT 1 FROM texts WHERE rowid = pages.key * {SLOTS} + pages.last % {SLOTS}) LIMIT 1
"""


def check_rows(database: sqlite3.Connection) -> None:
    """Look whether all turns are what was written, and all texts are there.

    Raises:
        sqlite3.DatabaseError: see `is_damage`.
    """
    for *values, written in database.execute(f"SELECT key, {TURN_COLUMNS}, sum FROM turns"):
        if sum_of(values) != written:
            raise damaged("a turn is not what was written")
    if database.execute(_PAGES_WITHOUT_TEXT).fetchone() is not None:
        raise damaged("a page of text is missing")


class HistoryIndex(DerivedFile):
    """Which turns, items and texts the logs have; several processes may make it at once."""

    def __init__(self, path: Path) -> None:
        """Open the index, or make it; one of another version is thrown away (then `is_new`).

        Raises:
            OSError: the file cannot be made.
        """
        super().__init__(path, _SCHEMA, SCHEMA_VERSION, lock=f"{path.name}.lock", autocommit=True)

    def _check_rows(self, database: sqlite3.Connection) -> None:
        check_rows(database)
        if self.is_small():
            # This asks for a connection that may write, and reads all texts once more.
            own = connect(self._path, synchronous="NORMAL", autocommit=True)
            with closing(own):
                own.execute("INSERT INTO texts (texts) VALUES ('integrity-check')")

    @once_more
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
                f"SELECT key, {TURN_COLUMNS}, sum FROM turns WHERE key = ? {where} "
                f"ORDER BY number {'ASC' if ascending else 'DESC'} LIMIT ?",
                (key, limit),
            ).fetchall()
            return [turn_of(values) for values in found]

    def turn(self, key: int, turn_id: str) -> TurnOutline | None:
        """Return a turn by its id."""
        with self.reading() as database:
            return find_turn(database, key, turn_id)
