"""The ledger of signals: every one that was accepted, and how far it has come. Blocking.

A row is written before its sender is answered; from then on the thread's log is ahead, and wins.
Source: docs/signals.md, "Ledger".
"""

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any

from app_server.runtime.files.sqlite import as_disk_failures, connect, version_of
from protocol.cursors import InvalidCursor, parse_cursor, render_cursor
from protocol.signals.delivery import SignalError, SignalReceipt, SignalStage

SCHEMA_VERSION = 1
KEEP_MS = 30 * 24 * 3600 * 1000
"""How long a signal that is over is known by its id."""
MAX_OVER = 200_000
"""Signals that are over which are kept, newest first."""

OPEN_STAGES: Sequence[SignalStage] = ("accepted", "inHistory", "seen")

LOGGED_STAGES: Sequence[SignalStage] = ("inHistory", "seen", "answered")
"""What the log of a thread says better."""


class LedgerFailed(OSError):
    """The ledger cannot be read or written; the text says why."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One signal in the ledger. Times are Unix milliseconds."""

    source: str
    id: str
    digest: str
    """Of the signal and where it should go; another one under the same id is another signal."""
    thread_id: str
    sender: str
    item: str
    """The item of history, JSON; empty once it is in the log."""
    wakes: bool
    steers: bool
    stage: SignalStage
    recipient_state: str
    at_ms: int
    item_id: str
    expires_at_ms: int | None = None
    turn_id: str | None = None
    woken_at_ms: int | None = None
    error_code: str | None = None
    error_message: str | None = None
    number: int | None = None
    """The place among all; given by the ledger."""

    @property
    def key(self) -> tuple[str, str]:
        """What the signal is known by."""
        return self.source, self.id

    @property
    def is_open(self) -> bool:
        """Whether something may still become of it."""
        return self.stage in OPEN_STAGES

    def receipt(self) -> SignalReceipt:
        """Show the entry as the wire has it."""
        error = None
        if self.error_code is not None:
            error = SignalError(code=self.error_code, message=self.error_message or "")
        return SignalReceipt(
            signal_id=self.id,
            source=self.source,
            thread_id=self.thread_id,
            stage=self.stage,
            item_id=self.item_id if self.stage in ("inHistory", "seen", "answered") else None,
            turn_id=self.turn_id,
            woken=self.woken_at_ms is not None,
            recipient_state=self.recipient_state,
            at=self.at_ms // 1000,
            error=error,
        )


@dataclass(frozen=True, slots=True)
class EntryPage:
    """One page, newest first; `next_cursor` is None at the end."""

    entries: Sequence[Entry]
    next_cursor: str | None


_COLUMNS = [column.name for column in fields(Entry) if column.name != "number"]
_NAMES = ", ".join(_COLUMNS)
_SCHEMA = f"""
CREATE TABLE signals (number INTEGER PRIMARY KEY AUTOINCREMENT, {_NAMES}, UNIQUE (source, id));
CREATE INDEX by_thread ON signals (thread_id, number);
CREATE INDEX by_woken ON signals (thread_id, source, woken_at_ms) WHERE woken_at_ms IS NOT NULL;
CREATE INDEX by_stage ON signals (stage, number);
PRAGMA user_version = {SCHEMA_VERSION};
"""
_PUT = (
    f"INSERT INTO signals ({_NAMES}) VALUES ({', '.join('?' * len(_COLUMNS))}) "
    f"ON CONFLICT (source, id) DO UPDATE SET "
    f"{', '.join(f'{name} = excluded.{name}' for name in _COLUMNS[2:])}"
)
_SELECT = f"SELECT {_NAMES}, number FROM signals"
_OPEN = f"stage IN ({', '.join(repr(stage) for stage in OPEN_STAGES)})"


class Ledger:
    """One SQLite file; safe to call from any worker thread."""

    def __init__(self, path: Path) -> None:
        """Open the ledger, or begin it.

        Raises:
            OSError: the file cannot be used, or is of a newer version.
        """
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = threading.Lock()
        with _failures():
            self._database = connect(path, synchronous="FULL")
            version = version_of(self._database)
            if version == 0:
                self._database.executescript(_SCHEMA)
        if version not in (0, SCHEMA_VERSION):
            self._database.close()
            raise LedgerFailed(f"the ledger of signals has version {version}")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def put(self, entries: Iterable[Entry]) -> None:
        """Insert or replace entries, all or none.

        They are on disk afterwards, except for stages that can be read again from a thread's log:
        those survive the death of the process, and of the machine a little later.

        Raises:
            LedgerFailed
        """
        entries = list(entries)
        is_in_log = all(entry.stage in LOGGED_STAGES for entry in entries)
        with self._open() as database:
            database.execute(f"PRAGMA synchronous = {'NORMAL' if is_in_log else 'FULL'}")
            database.executemany(_PUT, (astuple(entry)[: len(_COLUMNS)] for entry in entries))

    def find(self, source: str, signal_id: str) -> Entry | None:
        """Return one entry, or None."""
        with self._open() as database:
            row = database.execute(
                f"{_SELECT} WHERE source = ? AND id = ?", (source, signal_id)
            ).fetchone()
        return None if row is None else _entry(row)

    def open_entries(self) -> list[Entry]:
        """Return all entries that something may still become of, in their order."""
        with self._open() as database:
            rows = database.execute(f"{_SELECT} WHERE {_OPEN} ORDER BY number").fetchall()
        return [_entry(row) for row in rows]

    def stages(self) -> dict[str, int]:
        """Count the entries by stage; stages without any are left out."""
        with self._open() as database:
            return dict(database.execute("SELECT stage, count(*) FROM signals GROUP BY stage"))

    def turns_woken_since(self, thread_id: str, source: str, at_ms: int) -> int:
        """Count the turns of a thread that one source has begun."""
        with self._open() as database:
            (count,) = database.execute(
                "SELECT count(DISTINCT coalesce(turn_id, id)) FROM signals "
                "WHERE thread_id = ? AND source = ? AND woken_at_ms > ?",
                (thread_id, source, at_ms),
            ).fetchone()
        return int(count)

    def page(
        self, thread_id: str | None, stage: SignalStage | None, cursor: str | None, limit: int
    ) -> EntryPage:
        """Return one page, newest first.

        Raises:
            InvalidCursor
        """
        conditions: dict[str, Any] = {}
        if thread_id is not None:
            conditions["thread_id = ?"] = thread_id
        if stage is not None:
            conditions["stage = ?"] = stage
        if cursor is not None:
            conditions["number < ?"] = _parse_cursor(cursor)
        where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
        with self._open() as database:
            rows = database.execute(
                f"{_SELECT} {where} ORDER BY number DESC LIMIT ?",
                (*conditions.values(), limit + 1),
            ).fetchall()
        entries = [_entry(row) for row in rows[:limit]]
        more = len(rows) > limit
        return EntryPage(entries, _cursor(entries[-1].number) if more else None)

    def forget_old(self, now_ms: int) -> int:
        """Remove what has been over for long, or is beyond the number kept; return how many."""
        with self._open() as database:
            removed = database.execute(
                f"DELETE FROM signals WHERE NOT {_OPEN} AND (at_ms < ? OR number <= "
                f"coalesce((SELECT number FROM signals WHERE NOT {_OPEN} "
                "ORDER BY number DESC LIMIT 1 OFFSET ?), 0))",
                (now_ms - KEEP_MS, MAX_OVER),
            )
            return removed.rowcount

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with self._lock, _failures(), self._database:
            yield self._database


def _failures() -> AbstractContextManager[None]:
    return as_disk_failures(lambda _, text: LedgerFailed(text))


def _entry(row: Sequence[Any]) -> Entry:
    values = dict(zip([*_COLUMNS, "number"], row, strict=True))
    values |= {"wakes": bool(values["wakes"]), "steers": bool(values["steers"])}
    return Entry(**values)


def _cursor(number: int | None) -> str:
    return render_cursor("signals", number)


def _parse_cursor(cursor: str) -> int:
    match parse_cursor(cursor):
        case ["signals", int(number)] if abs(number) < 1 << 63:
            return number
    raise InvalidCursor(cursor)
