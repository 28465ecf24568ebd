"""The index as another program may look at it: read-only, at one moment. Everything here blocks."""

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from app_server.runtime.files.sqlite import connect_to_read, version_of
from app_server.threads.codex.threads import Seen
from app_server.threads.index.file import SCHEMA_VERSION
from app_server.threads.index.rows import COLUMN_NAMES, ThreadRow, row_of


class NoIndex(Exception):
    """There is no index that could be read; the text says why."""


@dataclass(frozen=True, slots=True)
class IndexSnapshot:
    """Every row of the index."""

    rows: dict[str, ThreadRow] = field(default_factory=dict)
    """By thread id; those of Codex too."""
    open_ids: frozenset[str] = frozenset()
    """Threads that a process held when it last wrote here."""
    codex: dict[str, Seen] = field(default_factory=dict)
    is_complete: bool = True
    """Not while a process fills it."""


def read_index(path: Path) -> IndexSnapshot:
    """Read the index without writing to it.

    Raises:
        NoIndex: it is missing, of another version, or damaged.
    """
    if not path.exists():
        raise NoIndex("it is missing")
    try:
        with closing(connect_to_read(path)) as database:
            version = version_of(database)
            if abs(version) != SCHEMA_VERSION:
                raise NoIndex(f"it is of version {abs(version)}, not {SCHEMA_VERSION}")
            (problem,) = database.execute("PRAGMA quick_check(1)").fetchone()
            if problem != "ok":
                raise NoIndex(f"it is damaged: {problem}")
            found = database.execute(f"SELECT {COLUMN_NAMES}, open FROM threads").fetchall()
            seen = database.execute(f"SELECT {', '.join(Seen._fields)} FROM seen").fetchall()
    except (sqlite3.Error, UnicodeDecodeError) as exc:
        raise NoIndex(f"it cannot be read: {exc}") from exc
    rows = [row_of(values[:-1]) for values in found]
    return IndexSnapshot(
        {row.id: row for row in rows},
        frozenset(values[0] for values in found if values[-1]),
        {values[0]: Seen(*values) for values in seen},
        is_complete=version > 0,
    )
