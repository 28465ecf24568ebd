"""Index of the turns, items and texts of every thread by offset in its log. Blocks.

A copy, like the index of threads: of each log it covers the bytes up to a mark, and whoever reads
it lets it catch up with the log first. What it says of a log that is not the one it has seen, or
of a reverted one, is made again from the beginning.
Source: docs/architecture.md, "Threads on disk".
"""

import logging
import os
import sqlite3
import zlib
from array import array
from collections.abc import Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from app_server.runtime.files.sqlite import connect, damaged
from app_server.threads.files.index.derived import DerivedFile, once_more, sum_of
from app_server.threads.files.writers import FileLog
from app_server.threads.history.outlining import (
    BETWEEN,
    MAX_PAGES,
    Progress,
    TextPages,
    read_on,
)
from app_server.threads.log.outline import (
    ItemKind,
    ItemPlace,
    Outliner,
    TurnOutline,
)
from app_server.threads.log.reading import Dropped, dropped_in
from protocol.turns.turn import TurnError

logger = logging.getLogger(__name__)


SLOTS = 64
"""Row ids that each thread has for its pages."""
END = BETWEEN * 2
"""Behind the last message of a page: so every place in a text begins a trigram."""

TEXT_SCHEMA = """
CREATE VIRTUAL TABLE texts USING fts5 (text, tokenize = 'trigram');
CREATE TABLE pages (key INTEGER PRIMARY KEY, last INTEGER NOT NULL);
"""


def read_last_page(database: sqlite3.Connection, key: int) -> tuple[int, str] | None:
    """Return the newest page of a thread's texts, with its number."""
    row = database.execute("SELECT last FROM pages WHERE key = ?", (key,)).fetchone()
    if row is None:
        return None
    found = database.execute("SELECT text FROM texts WHERE rowid = ?", (_row_id(key, row[0]),))
    kept = found.fetchone()
    if kept is None:
        raise damaged("a page of text is missing")
    return row[0], kept[0].removesuffix(END)


def write_pages(database: sqlite3.Connection, key: int, pages: TextPages) -> None:
    """Write the pages that changed; the oldest give way."""
    for page, text in pages.changed.items():
        if page == pages.kept:
            statement = "UPDATE texts SET text = ?2 WHERE rowid = ?1"
        else:
            statement = "INSERT INTO texts (rowid, text) VALUES (?1, ?2)"
            if page >= MAX_PAGES:
                old = _row_id(key, page - MAX_PAGES)
                database.execute("DELETE FROM texts WHERE rowid = ?", (old,))
        database.execute(statement, (_row_id(key, page), text + END))
    if pages.changed:
        newest = max(pages.changed)
        database.execute("INSERT OR REPLACE INTO pages (key, last) VALUES (?, ?)", (key, newest))


def _row_id(key: int, page: int) -> int:
    return key * SLOTS + page % SLOTS


TURN_COLUMNS = "number, id, started_at_ms, status, error, completed_at_ms, duration_ms, packed"
_MARK_BYTES = 256
"""Bytes of a log before the mark that are compared to see whether it is the same log."""


def catch_up(database: sqlite3.Connection, thread_id: str, path: Path) -> tuple[int, Progress]:
    """Take into account what was written to a log since the last time; its key, and how far.

    Raises:
        FileNotFoundError: there is no such log.
        OSError: it cannot be read.
    """
    size = path.stat().st_size
    found = _progress(database, thread_id, path)
    if found is None:
        key, progress = _empty_key(database, thread_id), Progress(0, 0, Outliner())
    else:
        key, progress = found
        if progress.seen == size:
            return key, progress
    dropped = None
    while progress.seen < size:
        start = progress.seen
        if not _scan(database, key, progress, FileLog(path), dropped, size):
            # There is a revert: what it drops is known only now.
            progress = Progress(0, 0, Outliner())
            clear(database, key)
            dropped = dropped_in(FileLog(path))
        elif progress.seen == start:
            # A torn line is left.
            break
    waiting = to_json([list(place) for place in progress.outliner.waiting]).decode()
    others = progress.at_ms, progress.outliner.started, waiting
    database.execute(
        "UPDATE logs SET seen = ?, mark = ?, at_ms = ?, started = ?, waiting = ? WHERE key = ?",
        (progress.seen, _mark(path, progress.seen, others), *others, key),
    )
    return key, progress


def _progress(
    database: sqlite3.Connection, thread_id: str, path: Path
) -> tuple[int, Progress] | None:
    found = database.execute(
        "SELECT key, seen, mark, at_ms, started, waiting FROM logs WHERE thread_id = ?",
        (thread_id,),
    ).fetchone()
    if found is None:
        return None
    key, seen, mark, *others = found
    if not isinstance(seen, int) or _mark(path, seen, others) != mark:
        return None
    at_ms, started, waiting = others
    last = database.execute(
        f"SELECT key, {TURN_COLUMNS}, sum FROM turns WHERE key = ? ORDER BY number DESC LIMIT 1",
        (key,),
    ).fetchone()
    places = [ItemPlace(place[0], place[1], ItemKind(place[2])) for place in from_json(waiting)]
    outliner = Outliner(None if last is None else turn_of(last), started, places)
    return key, Progress(seen, at_ms, outliner)


def _empty_key(database: sqlite3.Connection, thread_id: str) -> int:
    """Give a thread a key, or take from the one it has all that is known."""
    found = database.execute("SELECT key FROM logs WHERE thread_id = ?", (thread_id,)).fetchone()
    if found is not None:
        clear(database, found[0])
        return int(found[0])
    added = database.execute("INSERT INTO logs (thread_id) VALUES (?)", (thread_id,))
    assert added.lastrowid is not None
    return added.lastrowid


def _scan(
    database: sqlite3.Connection,
    key: int,
    progress: Progress,
    log: FileLog,
    dropped: Dropped | None,
    size: int,
) -> bool:
    """Read a step from where the index stands; without `dropped` up to a revert (then False)."""
    pages = TextPages(partial(read_last_page, database, key))
    find = partial(find_turn, database, key)
    if not read_on(log, progress, dropped, pages, find, size):
        return False
    write_pages(database, key, pages)
    _write_turns(database, key, progress.outliner.changed)
    progress.outliner.changed.clear()
    return True


def find_turn(database: sqlite3.Connection, key: int, turn_id: str) -> TurnOutline | None:
    """Return a turn by its id."""
    found = database.execute(
        f"SELECT key, {TURN_COLUMNS}, sum FROM turns WHERE key = ? AND id = ? ORDER BY number DESC",
        (key, turn_id),
    ).fetchone()
    return None if found is None else turn_of(found)


def _mark(path: Path, seen: int, others: Sequence[Any]) -> int:
    """Return a checksum of the indexed end of a log and its progress."""
    start = max(0, seen - _MARK_BYTES)
    with path.open("rb") as file:
        return zlib.crc32(os.pread(file.fileno(), seen - start, start), sum_of(others))


def clear(database: sqlite3.Connection, key: int) -> None:
    """Forget the turns and texts of a thread."""
    database.execute("DELETE FROM turns WHERE key = ?", (key,))
    first = key * SLOTS
    database.execute("DELETE FROM texts WHERE rowid BETWEEN ? AND ?", (first, first + SLOTS - 1))
    database.execute("DELETE FROM pages WHERE key = ?", (key,))


def _write_turns(database: sqlite3.Connection, key: int, turns: Sequence[TurnOutline]) -> None:
    database.executemany(
        f"INSERT OR REPLACE INTO turns (key, {TURN_COLUMNS}, sum, items) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        ((*values, sum_of(values), len(turn)) for turn in turns for values in [_values(key, turn)]),
    )


def _values(key: int, turn: TurnOutline) -> Sequence[Any]:
    return (
        key,
        turn.number,
        turn.id,
        turn.started_at_ms,
        turn.status,
        None if turn.error is None else turn.error.model_dump_json(),
        turn.completed_at_ms,
        turn.duration_ms,
        turn.packed.tobytes(),
    )


def turn_of(values: Sequence[Any]) -> TurnOutline:
    """Return the turn of a key, the values of TURN_COLUMNS, and their sum.

    Raises:
        sqlite3.DatabaseError: they are not what was written.
    """
    *members, written = values
    if sum_of(members) != written:
        raise damaged("a turn is not what was written")
    _, number, turn_id, started_at_ms, status, error, completed_at_ms, duration_ms, packed = members
    return TurnOutline(
        number,
        turn_id,
        started_at_ms,
        status,
        None if error is None else TurnError.model_validate_json(error),
        completed_at_ms,
        duration_ms,
        array("Q", packed),
    )


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
        """Bring the index up to date with one log.

        Returns its key in the index, and when it was last written, in Unix milliseconds.

        Raises:
            FileNotFoundError: there is no such log.
            OSError: it cannot be read.
        """
        with self.transaction() as database:
            key, progress = catch_up(database, thread_id, path)
        return key, progress.at_ms

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
