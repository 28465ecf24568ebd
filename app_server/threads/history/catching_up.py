"""The history index catches up with a log: which turns, items and texts came since. Blocks."""

import os
import sqlite3
import zlib
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic_core import from_json, to_json

from app_server.runtime.files.sqlite import damaged
from app_server.threads.history.full_text import TextPages
from app_server.threads.history.messages import item_in, message_text
from app_server.threads.index.derived import sum_of
from app_server.threads.log.file.lines import Dropped, LogLine, dropped_in, scan_lines
from app_server.threads.log.outline import (
    EndAfterTurn,
    ItemKind,
    ItemPlace,
    Outliner,
    TurnOutline,
)
from protocol.turns.turn import TurnError

TURN_COLUMNS = "number, id, started_at_ms, status, error, completed_at_ms, duration_ms, packed"
_MARK_BYTES = 256
"""How much of a log before the mark is compared to see whether it is the same log."""


@dataclass(slots=True)
class Progress:
    """How far a log was read, and what is needed to go on."""

    key: int
    seen: int
    at_ms: int
    outliner: Outliner


def catch_up(database: sqlite3.Connection, thread_id: str, path: Path) -> Progress:
    """Take into account what was written to a log since the last time.

    Raises:
        FileNotFoundError: there is no such log.
        OSError: it cannot be read.
    """
    size = path.stat().st_size
    progress = _progress(database, thread_id, path)
    if progress is None:
        progress = Progress(_empty_key(database, thread_id), 0, 0, Outliner())
    elif progress.seen == size:
        return progress
    if not _scan(database, progress, path, None):
        # There is a revert: what it drops is known only now.
        progress = Progress(progress.key, 0, 0, Outliner())
        clear(database, progress.key)
        _scan(database, progress, path, dropped_in(path))
    waiting = to_json([list(place) for place in progress.outliner.waiting]).decode()
    others = progress.at_ms, progress.outliner.started, waiting
    database.execute(
        "UPDATE logs SET seen = ?, mark = ?, at_ms = ?, started = ?, waiting = ? WHERE key = ?",
        (
            progress.seen,
            _mark(path, progress.seen, others),
            *others,
            progress.key,
        ),
    )
    return progress


def _progress(database: sqlite3.Connection, thread_id: str, path: Path) -> Progress | None:
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
    return Progress(key, seen, at_ms, outliner)


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
    database: sqlite3.Connection, progress: Progress, path: Path, dropped: Dropped | None
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
    database: sqlite3.Connection, progress: Progress, ended: EndAfterTurn, file: int
) -> None:
    """Let the item of a turn be in the line that completed it; a turn that was dropped has none."""
    turn = progress.outliner.find(ended.turn_id) or find_turn(database, progress.key, ended.turn_id)
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


def find_turn(database: sqlite3.Connection, key: int, turn_id: str) -> TurnOutline | None:
    """Return a turn by its id."""
    found = database.execute(
        f"SELECT key, {TURN_COLUMNS}, sum FROM turns WHERE key = ? AND id = ? ORDER BY number DESC",
        (key, turn_id),
    ).fetchone()
    return None if found is None else turn_of(found)


def _content(file: int, place: ItemPlace, line: LogLine) -> bytes:
    if place.offset == line.offset:
        return line.content
    return os.pread(file, place.length, place.offset)


def _mark(path: Path, seen: int, others: Sequence[Any]) -> int:
    """Return a number that tells this log, and what else is known of it, from all others."""
    start = max(0, seen - _MARK_BYTES)
    with path.open("rb") as file:
        return zlib.crc32(os.pread(file.fileno(), seen - start, start), sum_of(others))


def clear(database: sqlite3.Connection, key: int) -> None:
    """Forget the turns and texts of a thread."""
    database.execute("DELETE FROM turns WHERE key = ?", (key,))
    TextPages(database, key).clear()


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
