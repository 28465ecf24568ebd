"""Where every turn and item of every thread stands in its log, and what was said. Blocks.

A copy, like the index of threads: of each log it covers the bytes up to a mark, and whoever reads
it lets it catch up with the log first. What it says of a log that is not the one it has seen, or
of a reverted one, is made again from the beginning.
Source: docs/architecture.md, "Threads on disk".
"""

import logging
import os
import sqlite3
import threading
import zlib
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from app_server.runtime.sqlite import open_rebuildable, version_of
from app_server.threads.history.full_text import TEXT_SCHEMA, TextPages
from app_server.threads.history.messages import item_in, message_text
from app_server.threads.index.failures import index_failures
from app_server.threads.log.file.lines import LogLine, scan_lines
from app_server.threads.log.file.locks import short_lock
from app_server.threads.log.outline import (
    EndAfterTurn,
    ItemKind,
    ItemPlace,
    Outliner,
    TurnOutline,
)
from app_server.threads.log.reverts import Dropped, dropped_in
from protocol.turns import TurnError

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

_COLUMNS = "number, id, started_at_ms, status, error, completed_at_ms, duration_ms, packed"
_MARK_BYTES = 256
"""How much of a log before the mark is compared to see whether it is the same log."""


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What is known of a log that the index has caught up with."""

    key: int
    at_ms: int
    """When it was last written."""


@dataclass(slots=True)
class _Progress:
    key: int
    seen: int
    at_ms: int
    outliner: Outliner


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
                _clear(database, key)
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
                    _catch_up(database, thread_id, path)
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

    def facts(self, thread_id: str, path: Path) -> LogFacts:
        """Let the index catch up with one log and return what it knows of it.

        Raises:
            FileNotFoundError: there is no such log.
            OSError: it cannot be read.
        """
        with self.transaction() as database:
            progress = _catch_up(database, thread_id, path)
        return LogFacts(progress.key, progress.at_ms)

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
                f"SELECT {_COLUMNS} FROM turns WHERE key = ? {where} "
                f"ORDER BY number {'ASC' if ascending else 'DESC'} LIMIT ?",
                (key, limit),
            ).fetchall()
        return [_turn(values) for values in found]

    def turn(self, key: int, turn_id: str) -> TurnOutline | None:
        """Return a turn by its id."""
        with self.reading() as database:
            return _find(database, key, turn_id)


def _catch_up(database: sqlite3.Connection, thread_id: str, path: Path) -> _Progress:
    size = path.stat().st_size
    progress = _progress(database, thread_id, path)
    if progress is None:
        progress = _Progress(_empty_key(database, thread_id), 0, 0, Outliner())
    elif progress.seen == size:
        return progress
    if not _scan(database, progress, path, None):
        # There is a revert: what it drops is known only now.
        progress = _Progress(progress.key, 0, 0, Outliner())
        _clear(database, progress.key)
        _scan(database, progress, path, dropped_in(path))
    waiting = to_json([list(place) for place in progress.outliner.waiting]).decode()
    database.execute(
        "UPDATE logs SET seen = ?, mark = ?, at_ms = ?, started = ?, waiting = ? WHERE key = ?",
        (
            progress.seen,
            _mark(path, progress.seen),
            progress.at_ms,
            progress.outliner.started,
            waiting,
            progress.key,
        ),
    )
    return progress


def _progress(database: sqlite3.Connection, thread_id: str, path: Path) -> _Progress | None:
    found = database.execute(
        "SELECT key, seen, mark, at_ms, started, waiting FROM logs WHERE thread_id = ?",
        (thread_id,),
    ).fetchone()
    if found is None or _mark(path, found[1]) != found[2]:
        return None
    key, seen, _, at_ms, started, waiting = found
    last = database.execute(
        f"SELECT {_COLUMNS} FROM turns WHERE key = ? ORDER BY number DESC LIMIT 1", (key,)
    ).fetchone()
    places = [ItemPlace(place[0], place[1], ItemKind(place[2])) for place in from_json(waiting)]
    outliner = Outliner(None if last is None else _turn(last), started, places)
    return _Progress(key, seen, at_ms, outliner)


def _empty_key(database: sqlite3.Connection, thread_id: str) -> int:
    """Give a thread a key, or take from the one it has all that is known."""
    found = database.execute("SELECT key FROM logs WHERE thread_id = ?", (thread_id,)).fetchone()
    if found is not None:
        _clear(database, found[0])
        return int(found[0])
    added = database.execute("INSERT INTO logs (thread_id) VALUES (?)", (thread_id,))
    assert added.lastrowid is not None
    return added.lastrowid


def _scan(
    database: sqlite3.Connection, progress: _Progress, path: Path, dropped: Dropped | None
) -> bool:
    """Read on from where the index stands; without `dropped` only up to a revert (then False)."""
    outliner = progress.outliner
    texts = TextPages(database, progress.key)
    with path.open("rb") as file:
        for line in scan_lines(path, progress.seen):
            if line.type == "turnsReverted" and dropped is None:
                return False
            if dropped is not None and dropped.has(line.type, line.offset):
                outliner.skip(line)
            else:
                outliner.feed(line)
            for place in outliner.added:
                if place.kind is not ItemKind.OTHER:
                    texts.add(message_text(_content(file.fileno(), place, line)))
            outliner.added.clear()
            for ended in outliner.ended:
                _end_after_turn(database, progress, ended, file.fileno())
            outliner.ended.clear()
            progress.seen, progress.at_ms = line.end, max(progress.at_ms, line.at_ms)
    texts.flush()
    _write_turns(database, progress.key, outliner.changed)
    outliner.changed.clear()
    return True


def _end_after_turn(
    database: sqlite3.Connection, progress: _Progress, ended: EndAfterTurn, file: int
) -> None:
    """Let the item of a turn be in the line that completed it; a turn that was dropped has none."""
    turn = progress.outliner.find(ended.turn_id) or _find(database, progress.key, ended.turn_id)
    if turn is None:
        return
    for index in range(len(turn) - 1, -1, -1):
        place = turn.place(index)
        if place.kind is ItemKind.OTHER:
            item = item_in(os.pread(file, place.length, place.offset))
            if getattr(item, "id", None) == ended.item_id:
                turn.replace(index, ended.place)
                progress.outliner.changed.append(turn)
                return


def _find(database: sqlite3.Connection, key: int, turn_id: str) -> TurnOutline | None:
    found = database.execute(
        f"SELECT {_COLUMNS} FROM turns WHERE key = ? AND id = ? ORDER BY number DESC",
        (key, turn_id),
    ).fetchone()
    return None if found is None else _turn(found)


def _content(file: int, place: ItemPlace, line: LogLine) -> bytes:
    if place.offset == line.offset:
        return line.content
    return os.pread(file, place.length, place.offset)


def _mark(path: Path, seen: int) -> int:
    start = max(0, seen - _MARK_BYTES)
    with path.open("rb") as file:
        return zlib.crc32(os.pread(file.fileno(), seen - start, start))


def _clear(database: sqlite3.Connection, key: int) -> None:
    database.execute("DELETE FROM turns WHERE key = ?", (key,))
    TextPages(database, key).clear()


def _write_turns(database: sqlite3.Connection, key: int, turns: Sequence[TurnOutline]) -> None:
    database.executemany(
        f"INSERT OR REPLACE INTO turns (key, {_COLUMNS}, items) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            (
                key,
                turn.number,
                turn.id,
                turn.started_at_ms,
                turn.status,
                None if turn.error is None else turn.error.model_dump_json(),
                turn.completed_at_ms,
                turn.duration_ms,
                turn.packed.tobytes(),
                len(turn),
            )
            for turn in turns
        ),
    )


def _turn(values: Sequence[Any]) -> TurnOutline:
    number, turn_id, started_at_ms, status, error, completed_at_ms, duration_ms, packed = values
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
