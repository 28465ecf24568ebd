"""Copies of a home's files to a database and back: lines as they are, thread by thread. Blocks.

A thread is copied whole or not at all, so a copy that was killed can be repeated: what is there
with the same bytes stays, and what differs is named and left alone, as is what a process writes.
Source: docs/scale.md, "Moving threads".
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias
from uuid import UUID

from app_server.runtime.files.disk import atomic_write, make_folder
from app_server.threads.failures import (
    InvalidThreadId,
    StoreUnavailable,
    ThreadBusy,
    ThreadNotFound,
    uuid_of,
)
from app_server.threads.files.ledger import Ledger
from app_server.threads.files.signals import ledger_path
from app_server.threads.files.store import filing_path
from app_server.threads.files.writers import FileLog, LogPaths, LogWriters
from app_server.threads.ledger import Entry, SignalLedger
from app_server.threads.log.faults import FirstLineDamaged, LogTooNew
from app_server.threads.log.reading import Log, load_state, scan_lines
from app_server.threads.log.state import NotARollout
from app_server.threads.postgresql.copying import DatabaseCopy
from app_server.threads.postgresql.database import Database
from app_server.threads.postgresql.signals.ledger import PostgresLedger
from app_server.threads.rows import ThreadRow
from app_server.threads.wakes import StoredWake, WakeStore

ROW_BYTES = 1 << 20
"""Bytes of lines that an import puts into one row, but for a longer line."""
MAX_LINE_BYTES = 1_000_000_000
"""Of one line: PostgreSQL takes no larger row."""
PAGE = 1000
"""Signals that are read at once."""
CHUNK = 1 << 20

Say: TypeAlias = Callable[[str], None]
Outcome: TypeAlias = Literal["copied", "there", "left"]


@dataclass(slots=True)
class Copied:
    """What a copy has done."""

    threads: int = 0
    """Copied now."""
    there: int = 0
    """Threads that were there with the same bytes."""
    signals: int = 0
    left: list[str] = field(default_factory=list)
    """A sentence for each thread that was left out, and why."""

    def note(self, outcome: Outcome) -> None:
        """Count a thread."""
        self.threads += outcome == "copied"
        self.there += outcome == "there"


def import_home(
    home: Path, database: Database, say: Say, *, max_line_bytes: int = MAX_LINE_BYTES
) -> Copied:
    """Copy a home's threads, projects, sections and signals into a database.

    A line that a crash tore off at the end of a log is left out, as by the next server. A thread
    that has a line of more than `max_line_bytes` is left out, too.

    Raises:
        OSError: the home cannot be read, or the database takes nothing; what was copied stays.
    """
    copied, paths = Copied(), LogPaths(home / "threads")
    writers, target = LogWriters(home / "locks", paths), DatabaseCopy(database)
    with target.alone(say):
        logs = sorted(paths.folder.rglob("*.jsonl"))
        for number, path in enumerate(logs, start=1):
            _progress(say, number, len(logs))
            try:
                thread_id = uuid_of(path.stem)
                with writers.locked(path.stem):
                    copied.note(_import(path, thread_id, target, max_line_bytes))
            except InvalidThreadId:
                copied.left.append(f"{path}: its name is no id of a thread")
            except ThreadBusy as exc:
                copied.left.append(f"{path.stem} is written by {exc.holder}; stop that first")
            except _Left as exc:
                copied.left.append(f"{path.stem} {exc}")
            except OSError as exc:
                if not path.exists():
                    say(f"{path.stem} is not there any more, and is passed over")
                    continue
                if isinstance(exc, StoreUnavailable) and exc.reason != "databaseError":
                    raise
                # One that cannot be read, or is refused by itself, keeps no other from its copy.
                copied.left.append(f"{path.stem} cannot be copied: {exc}")
        _import_filing(filing_path(home), target, copied)
        copied.signals = _import_signals(ledger_path(home), database)
    return copied


class _Left(Exception):
    """A thread cannot be copied; the text says why."""


def _import(path: Path, thread_id: UUID, target: DatabaseCopy, max_line_bytes: int) -> Outcome:
    log = FileLog(path)
    try:
        state = load_state(log, with_history=False)
    except LogTooNew:
        raise _Left("is of a newer version of this server") from None
    except FirstLineDamaged:
        raise _Left("has a damaged first line, so nothing is known of it") from None
    except NotARollout:
        raise _Left("has no line") from None
    if target.add(thread_id, ThreadRow.of(state), _rows(log, max_line_bytes)):
        return "copied"
    if _digest(target.log(thread_id)) != _digest(log):
        raise _Left("is in the database with other lines; delete it there, or leave it")
    return "there"


def _rows(log: Log, max_line_bytes: int = MAX_LINE_BYTES) -> Iterator[bytes]:
    """Group the whole lines of a log into rows, byte for byte."""
    lines: list[bytes] = []
    size = 0
    for content in _whole_lines(log, max_line_bytes):
        if lines and size + len(content) > ROW_BYTES:
            yield b"".join(lines)
            lines, size = [], 0
        lines.append(content)
        size += len(content)
    if lines:
        yield b"".join(lines)


def _whole_lines(log: Log, max_line_bytes: int) -> Iterator[bytes]:
    with log.open() as file:
        for line in scan_lines(log):
            size = line.end - line.offset
            if size > max_line_bytes:
                raise _Left(f"has a line of {size} bytes, more than a row takes")
            if line.content:
                yield line.content
                continue
            # Too long to be looked at, but not to be kept.
            file.seek(line.offset)
            yield file.read(size)


def _digest(log: Log) -> bytes:
    digest = hashlib.sha256()
    for content in _rows(log):
        digest.update(content)
    return digest.digest()


def _import_filing(path: Path, target: DatabaseCopy, copied: Copied) -> None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    lines = content[: content.rfind(b"\n") + 1].splitlines(keepends=True)
    if not target.add_filing(lines):
        copied.left.append("the projects and sections of the database are others; they stay")


def _import_signals(path: Path, database: Database) -> int:
    if not path.exists():
        return 0
    source, target = Ledger(path), PostgresLedger(database)
    try:
        _copy_wakes(source.wakes, target.wakes)
        return _put(_entries(source), target)
    finally:
        source.close()


def _entries(ledger: SignalLedger) -> Sequence[Entry]:
    """Return all entries, oldest first."""
    found: list[Entry] = []
    cursor = None
    while True:
        page = ledger.page(None, None, cursor, PAGE)
        found += page.entries
        cursor = page.next_cursor
        if cursor is None:
            return found[::-1]


def _put(entries: Sequence[Entry], ledger: SignalLedger) -> int:
    for first in range(0, len(entries), PAGE):
        ledger.put(entries[first : first + PAGE])
    return len(entries)


def _copy_wakes(source: WakeStore, target: WakeStore) -> None:
    """Copy the wakes that are open, and not there yet, oldest first."""
    found: list[StoredWake] = []
    cursor = None
    while True:
        page = source.page(None, None, cursor, PAGE)
        found += [wake for wake in page.wakes if wake.is_open]
        cursor = page.next_cursor
        if cursor is None:
            break
    for wake in reversed(found):
        if target.find(wake.id) is None:
            target.add(wake)


def export_home(database: Database, home: Path, say: Say) -> Copied:
    """Copy all threads, projects, sections and signals of a database into a home.

    Raises:
        OSError: the database cannot be read, or the disk refused; what was copied stays.
    """
    copied, paths = Copied(), LogPaths(home / "threads")
    make_folder(home)
    writers, source = LogWriters(home / "locks", paths), DatabaseCopy(database)
    make_folder(writers.locks)
    with source.alone(say):
        threads = source.ids()
        for number, thread_id in enumerate(threads, start=1):
            _progress(say, number, len(threads))
            try:
                with source.held(thread_id), writers.locked(str(thread_id)):
                    copied.note(_export(source.log(thread_id), paths.path_of(str(thread_id))))
            except ThreadBusy as exc:
                copied.left.append(f"{thread_id} is written by {exc.holder}; stop that first")
            except ThreadNotFound:
                say(f"{thread_id} is not there any more, and is passed over")
            except _Left as exc:
                copied.left.append(f"{thread_id} {exc}")
        _export_filing(source.filing(), filing_path(home), copied)
        copied.signals = _export_signals(database, ledger_path(home))
    return copied


def _export(log: Log, path: Path) -> Outcome:
    if path.exists() and path.stat().st_size:
        if _digest(FileLog(path)) != _digest(log):
            raise _Left(f"is at {path} with other lines; remove that, or leave it")
        return "there"
    make_folder(path.parent)
    with log.open() as source, atomic_write(path, path.with_suffix(".part")) as target:
        while chunk := source.read(CHUNK):
            target.write(chunk)
    return "copied"


def _export_filing(lines: Sequence[bytes], path: Path, copied: Copied) -> None:
    content = b"".join(lines)
    if path.exists() and path.stat().st_size:
        if path.read_bytes() != content:
            copied.left.append(f"the projects and sections of {path} are others; they stay")
    elif content:
        with atomic_write(path, path.with_suffix(".part")) as target:
            target.write(content)


def _export_signals(database: Database, path: Path) -> int:
    source = PostgresLedger(database)
    entries = _entries(source)
    if not entries and not source.wakes.page(None, None, None, 1).wakes:
        return 0
    ledger = Ledger(path)
    try:
        _copy_wakes(source.wakes, ledger.wakes)
        return _put(entries, ledger)
    finally:
        ledger.close()


def _progress(say: Say, number: int, total: int) -> None:
    if number % 100 == 0 or number == total:
        say(f"thread {number} of {total}")
