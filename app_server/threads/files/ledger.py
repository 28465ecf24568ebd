"""The ledger of signals: every one that was accepted, and how far it has come. Blocking.

A row is written before its sender is answered; from then on the thread's log is ahead, and wins.
All servers of a home write to the one file: a row is never moved back.
Source: docs/signals.md, "Ledger", "Several servers".
"""

import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import astuple, fields
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from pydantic import TypeAdapter
from pydantic_core import from_json

from app_server.runtime.files.sqlite import (
    as_disk_failures,
    check_whole,
    connect,
    connect_to_read,
    damaged,
    identity,
    is_damage,
    is_obstructed,
    set_aside,
    version_of,
)
from app_server.runtime.table_pages import newest_first
from app_server.threads.files import wakes
from app_server.threads.files.locks import short_lock
from app_server.threads.files.wakes import FileWakes
from app_server.threads.ledger import (
    KEEP_MS,
    LOGGED_STAGES,
    MAX_OVER,
    Entry,
    EntryPage,
    LedgerFailed,
    page_of_entries,
    parse_entry_cursor,
)
from app_server.threads.wakes import COLUMNS as WAKE_COLUMNS
from app_server.threads.wakes import StoredWake
from protocol.signals.delivery import OPEN_STAGES, SignalStage

logger = logging.getLogger(__name__)

SCHEMA_VERSION = 1
MAX_VERSION = 1000
"""Of later servers; a larger one is damage."""
OPENING_LOCK = "ledger.lock"
CHECKED_BYTES = 4 * 1024 * 1024
"""A ledger of up to this size is read whole when it is opened."""
AGAIN_S = 60.0
"""A running server sets a ledger aside at most so often."""

NO_FILE = (-1, -1)
"""The identity of none."""


Args = ParamSpec("Args")
Result = TypeVar("Result")


class LedgerReplaced(LedgerFailed):
    """The ledger was damaged, and another one has been begun."""


def _once_more(method: Callable[Args, Result]) -> Callable[Args, Result]:
    """Have a call repeated on the new ledger when the one that it met was damaged."""

    @wraps(method)
    def call(*args: Args.args, **kwargs: Args.kwargs) -> Result:
        try:
            return method(*args, **kwargs)
        except LedgerReplaced:
            return method(*args, **kwargs)

    return call


_COLUMNS = [column.name for column in fields(Entry) if column.name != "number"]
_NAMES = ", ".join(_COLUMNS)
_SCHEMA = f"""
CREATE TABLE signals (number INTEGER PRIMARY KEY AUTOINCREMENT, {_NAMES}, UNIQUE (source, id));
CREATE INDEX by_thread ON signals (thread_id, number);
CREATE INDEX by_woken ON signals (thread_id, source, woken_at_ms) WHERE woken_at_ms IS NOT NULL;
CREATE INDEX by_stage ON signals (stage, number);
PRAGMA user_version = {SCHEMA_VERSION};
"""
_OPEN = f"stage IN ({', '.join(repr(stage) for stage in OPEN_STAGES)})"


def _place(column: str) -> str:
    """Say in SQL how far along the log a stage is; 0 where it is not in the log."""
    cases = " ".join(f"WHEN '{stage}' THEN {n}" for n, stage in enumerate(LOGGED_STAGES, 1))
    return f"CASE {column} {cases} ELSE 0 END"


# What a log says wins over all but what it said later; else only what is open is ended.
_PUT = (
    f"INSERT INTO signals ({_NAMES}) VALUES ({', '.join('?' * len(_COLUMNS))}) "
    f"ON CONFLICT (source, id) DO UPDATE SET "
    f"{', '.join(f'{name} = excluded.{name}' for name in _COLUMNS[2:])} "
    f"WHERE CASE WHEN {_place('excluded.stage')} > 0 "
    f"THEN {_place('excluded.stage')} >= {_place('signals.stage')} "
    f"ELSE excluded.stage <> 'accepted' AND signals.{_OPEN} END"
)
_SELECT = f"SELECT {_NAMES}, number FROM signals"


class Ledger:
    """One SQLite file; safe to call from any worker thread."""

    def __init__(
        self, path: Path, *, max_over: int = MAX_OVER, checked_bytes: int = CHECKED_BYTES
    ) -> None:
        """Open the ledger, or begin it.

        Of the signals that are over the newest `max_over` are kept. A file of up to `checked_bytes`
        is read whole when it is opened.

        Raises:
            OSError: the file cannot be used, or is of a newer version.
        """
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = path
        self._max_over = max_over
        self._checked_bytes = checked_bytes
        self._lock = threading.Lock()
        self._set_aside_at = float("-inf")
        self.wakes = FileWakes(self)
        with _failures():
            self._open_file()

    def _open_file(self) -> None:
        # Nobody sets the file aside while somebody else looks what it is.
        with short_lock(self._path.with_name(OPENING_LOCK)):
            try:
                self.database = open_database(self._path, self._checked_bytes)
            except (sqlite3.Error, UnicodeDecodeError) as exc:
                if not is_damage(exc, self._path) and not is_obstructed(self._path):
                    raise
                self.database = self._set_aside(exc)
            self._file = identity(self._path)
            self._written_ns = self._path.stat().st_mtime_ns

    def _set_aside(self, damage: Exception) -> sqlite3.Connection:
        """Begin a new ledger, with the rows of the damaged one that can be read."""
        self._set_aside_at = time.monotonic()
        kept = set_aside(self._path)
        database = open_database(self._path, self._checked_bytes)
        try:
            rows = _readable_rows(kept)
            with database:
                database.executemany(_PUT, rows)
                database.executemany(wakes.RESTORE, _readable_wakes(kept))
        except BaseException:
            database.close()
            raise
        logger.error(
            "the ledger of signals is damaged (%s); it is kept as %s. %d of its signals could be "
            "read and go on; others that waited are lost, and those that are repeated are "
            "delivered again",
            damage,
            kept,
            len(rows),
        )
        return database

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self.database.close()

    @_once_more
    def put(self, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Insert entries, or move those that are there; all or none.

        They are on disk afterwards, except for stages that can be read again from a thread's log:
        those survive the death of the process, and of the machine a little later.
        Returns the entries that another server had moved further: those stay as they are there.

        Raises:
            LedgerFailed
        """
        is_in_log = all(entry.stage in LOGGED_STAGES for entry in entries)
        ahead = []
        with self.transaction() as database:
            database.execute(f"PRAGMA synchronous = {'NORMAL' if is_in_log else 'FULL'}")
            for entry in entries:
                written = database.execute(_PUT, astuple(entry)[: len(_COLUMNS)])
                if written.rowcount == 0:
                    ahead.append(_entry(_row(database, *entry.key)))
        return ahead

    @_once_more
    def find(self, source: str, signal_id: str) -> Entry | None:
        """Return one entry, or None."""
        with self.transaction() as database:
            row = _row(database, source, signal_id)
        return None if row is None else _entry(row)

    @_once_more
    def version(self) -> object:
        """Return a value that differs once another server has written, or the file is another."""
        with self.transaction() as database:
            (version,) = database.execute("PRAGMA data_version").fetchone()
            return self._file, version

    @_once_more
    def open_entries(self, thread_id: str | None = None) -> list[Entry]:
        """Return the entries, perhaps of one thread, that may still change, in their order."""
        of_thread, values = ("", ()) if thread_id is None else (" AND thread_id = ?", (thread_id,))
        with self.transaction() as database:
            found = database.execute(f"{_SELECT} WHERE {_OPEN}{of_thread} ORDER BY number", values)
            return [_entry(row) for row in found]

    @_once_more
    def stages(self) -> dict[str, int]:
        """Count the entries by stage; stages without any are left out."""
        with self.transaction() as database:
            return dict(database.execute("SELECT stage, count(*) FROM signals GROUP BY stage"))

    @_once_more
    def turns_woken_since(self, thread_id: str, source: str, at_ms: int, now_ms: int) -> int:
        """Count the turns of a thread that one source has begun since a time, up to now.

        Those of later times were begun before the clock was set back, nobody knows how long ago.
        """
        with self.transaction() as database:
            (count,) = database.execute(
                "SELECT count(DISTINCT coalesce(turn_id, id)) FROM signals "
                "WHERE thread_id = ? AND source = ? AND woken_at_ms > ? AND woken_at_ms <= ?",
                (thread_id, source, at_ms, now_ms),
            ).fetchone()
        return int(count)

    @_once_more
    def page(
        self, thread_id: str | None, stage: SignalStage | None, cursor: str | None, limit: int
    ) -> EntryPage:
        """Return one page, newest first.

        Raises:
            InvalidCursor
        """
        before = None if cursor is None else parse_entry_cursor(cursor)
        equal = {"thread_id": thread_id, "stage": stage}
        statement, values = newest_first(f"{_SELECT} WHERE true", "?", equal, before, limit)
        with self.transaction() as database:
            rows = database.execute(statement, values).fetchall()
        return page_of_entries([_entry(row) for row in rows], limit)

    @_once_more
    def forget_old(self, now_ms: int) -> int:
        """Remove what has been over for long, or is beyond the number kept; return how many."""
        with self.transaction() as database:
            removed = database.execute(
                f"DELETE FROM signals WHERE NOT {_OPEN} AND (at_ms < ? OR number <= "
                f"coalesce((SELECT number FROM signals WHERE NOT {_OPEN} "
                "ORDER BY number DESC LIMIT 1 OFFSET ?), 0))",
                (now_ms - KEEP_MS, self._max_over),
            )
            return removed.rowcount

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Lend the database for one transaction.

        Raises:
            LedgerReplaced: it was damaged, and nothing was done; the next call has a new one.
            LedgerFailed
        """
        with self._lock, _failures():
            if identity(self._path) != self._file:
                # Another process has set it aside.
                self._reopen()
            try:
                self._check_if_written()
                with self.database:
                    yield self.database
                self._written_ns = self._path.stat().st_mtime_ns
            except (sqlite3.Error, UnicodeDecodeError) as exc:
                if not is_damage(exc, self._path):
                    raise
                self._begin_anew(exc)
                raise LedgerReplaced(f"the ledger of signals was damaged: {exc}") from exc

    def _check_if_written(self) -> None:
        """Read the file again after a write that was not ours: in memory are pages of before.

        In WAL mode that is a checkpoint of another process, or damage.
        """
        if self._path.stat().st_mtime_ns != self._written_ns:
            self.database.execute("PRAGMA shrink_memory")
            _check(self.database, self._path, self._checked_bytes)

    def _begin_anew(self, damage: Exception) -> None:
        if time.monotonic() - self._set_aside_at < AGAIN_S:
            # Whatever spoils it would spoil the next one too.
            raise damage
        with short_lock(self._path.with_name(OPENING_LOCK)):
            if identity(self._path) == self._file:
                self._give_up()
                self._set_aside(damage).close()
        self._reopen()

    def _reopen(self) -> None:
        self._give_up()
        self._open_file()

    def _give_up(self) -> None:
        self.database.close()
        # Until another one is open, each call tries again.
        self._file = NO_FILE


def open_database(path: Path, checked_bytes: int) -> sqlite3.Connection:
    """Open a ledger, or make its tables; a small one is read whole."""
    database = connect(path, synchronous="FULL")
    try:
        if version_of(database) == 0:
            database.executescript(_SCHEMA)
        # A ledger of the time before wakes has no such table.
        database.executescript(wakes.SCHEMA)
        _check(database, path, checked_bytes)
    except BaseException:
        database.close()
        raise
    return database


def _check(database: sqlite3.Connection, path: Path, checked_bytes: int) -> None:
    """Check the version of an open ledger, and all pages of a small one."""
    version = version_of(database)
    if not 0 < version <= MAX_VERSION:
        raise damaged(f"its version is {version}")
    if version != SCHEMA_VERSION:
        raise LedgerFailed(f"the ledger of signals has version {version}")
    if path.stat().st_size <= checked_bytes:
        check_whole(database)


@cache
def _validator(of: type) -> TypeAdapter[Any]:
    # Building it takes longer than validating hundreds of rows, and few ledgers are damaged.
    return TypeAdapter(of)


def _readable_rows(path: Path) -> list[tuple[Any, ...]]:
    """Read what can be read of a damaged ledger."""
    validator = _validator(Entry)

    def check(row: dict[str, Any]) -> None:
        validator.validate_python(row)
        if row["item"]:
            from_json(row["item"])

    return _readable(path, _SELECT, _COLUMNS, check)


def _readable_wakes(path: Path) -> list[tuple[Any, ...]]:
    validator = _validator(StoredWake)

    def check(row: dict[str, Any]) -> None:
        validator.validate_python(row)
        from_json(row["source"])

    return _readable(path, wakes.SELECT, WAKE_COLUMNS, check)


def _readable(
    path: Path, select: str, columns: Sequence[str], check: Callable[[dict[str, Any]], None]
) -> list[tuple[Any, ...]]:
    """Read the rows of a table that pass a check, which raises ValueError, from both ends."""
    found: dict[Any, tuple[Any, ...]] = {}
    for order in ("ASC", "DESC"):
        with (
            suppress(sqlite3.Error, UnicodeDecodeError, OSError),
            closing(connect_to_read(path)) as database,
        ):
            for *values, number in database.execute(f"{select} ORDER BY number {order}"):
                with suppress(ValueError):
                    check(dict(zip(columns, values, strict=True)))
                    found[number] = tuple(values)
    return [found[number] for number in sorted(found)]


def _failures() -> AbstractContextManager[None]:
    return as_disk_failures(lambda _, text: LedgerFailed(text))


def _row(database: sqlite3.Connection, source: str, signal_id: str) -> Any:
    found = database.execute(f"{_SELECT} WHERE source = ? AND id = ?", (source, signal_id))
    return found.fetchone()


def _entry(row: Sequence[Any]) -> Entry:
    values = dict(zip([*_COLUMNS, "number"], row, strict=True))
    values |= {"wakes": bool(values["wakes"]), "steers": bool(values["steers"])}
    return Entry(**values)
