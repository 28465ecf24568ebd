"""The index over all threads: lists and searches without opening a log. Everything here blocks.

The index is a copy: whatever it says can be made again from the rollouts. A row is marked `open`
while a writer holds its thread, so that after a crash only those rows are made again.
Source: docs/architecture.md, "Threads on disk".
"""

import base64
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic_core import from_json, to_json

from app_server.threads.state import ThreadState

SCHEMA_VERSION = 1

SortKey: TypeAlias = Literal["created_at_ms", "updated_at_ms", "recency_at_ms"]


class InvalidCursor(Exception):
    """A cursor that no page of ours has given out."""


@dataclass(frozen=True, slots=True)
class ThreadRow:
    """What lists show of a thread. Times are Unix milliseconds."""

    id: str
    created_at_ms: int
    updated_at_ms: int
    recency_at_ms: int
    name: str | None
    preview: str
    archived: bool
    has_content: bool
    model: str
    model_provider: str
    effort: str | None
    cwd: str
    source: str
    """JSON, as the wire has it."""
    source_kind: str
    originator: str | None
    cli_version: str
    thread_source: str | None

    @classmethod
    def of(cls, state: ThreadState) -> "ThreadRow":
        """Summarize a thread."""
        created, settings = state.created, state.settings
        return cls(
            id=state.id,
            created_at_ms=created.at_ms,
            updated_at_ms=state.updated_at_ms,
            recency_at_ms=state.recency_at_ms,
            name=state.name,
            preview=state.preview,
            archived=state.archived,
            has_content=state.has_content,
            model=settings.model,
            model_provider=settings.model_provider,
            effort=settings.effort,
            cwd=settings.cwd,
            source=to_json(created.source).decode(),
            source_kind=created.source if isinstance(created.source, str) else "unknown",
            originator=created.originator,
            cli_version=created.cli_version,
            thread_source=created.thread_source,
        )


@dataclass(frozen=True, slots=True)
class ThreadQuery:
    """Which threads, in which order. Empty sequences mean no restriction."""

    limit: int
    cursor: str | None = None
    sort_key: SortKey = "created_at_ms"
    ascending: bool = False
    archived: bool = False
    model_providers: Sequence[str] = ()
    source_kinds: Sequence[str] = ()
    originators: Sequence[str] = ()
    cwds: Sequence[str] = ()
    excluded: Sequence[str] = ()
    search: str | None = None
    """Part of the name or the preview, whatever its case."""
    name: str | None = None
    """The whole name."""


@dataclass(frozen=True, slots=True)
class ThreadPage:
    """One page; the cursors continue it in both directions."""

    rows: Sequence[ThreadRow]
    next_cursor: str | None
    backwards_cursor: str | None


_COLUMNS = [column.name for column in fields(ThreadRow)]
_NAMES = ", ".join(_COLUMNS)

_SCHEMA = f"""
CREATE TABLE threads ({", ".join(_COLUMNS)}, open INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (id));
CREATE INDEX by_created ON threads (archived, has_content, created_at_ms, id);
CREATE INDEX by_updated ON threads (archived, has_content, updated_at_ms, id);
CREATE INDEX by_recency ON threads (archived, has_content, recency_at_ms, id);
CREATE INDEX by_open ON threads (id) WHERE open;
"""

_INSERT = f"INSERT INTO threads ({_NAMES}, open) VALUES ({', '.join('?' * len(_COLUMNS))}, ?)"
_ASSIGNMENTS = ", ".join(f"{name} = excluded.{name}" for name in [*_COLUMNS[1:], "open"])
_UPSERT = f"{_INSERT} ON CONFLICT (id) DO UPDATE SET {_ASSIGNMENTS}"
_ADD = f"{_INSERT} ON CONFLICT (id) DO NOTHING"


class ThreadIndex:
    """One SQLite file in WAL mode; safe to call from any worker thread."""

    def __init__(self, path: Path) -> None:
        """Open the index, or make it.

        One of another version, one that was never marked complete, and one that is no database are
        thrown away; `is_new` then says that there may be threads it does not know.

        Raises:
            OSError, sqlite3.Error: the file cannot be made.
        """
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock = threading.Lock()
        self._database, self.is_new = _open(path)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def put(self, rows: Iterable[ThreadRow], *, is_open: bool) -> None:
        """Insert or replace rows, all or none; `is_open` says that a writer holds their threads."""
        with self._transaction() as database:
            database.executemany(_UPSERT, ((*astuple(row), is_open) for row in rows))

    def add(self, rows: Iterable[ThreadRow]) -> None:
        """Insert rows that no writer holds, where there is none yet."""
        with self._transaction() as database:
            database.executemany(_ADD, ((*astuple(row), False) for row in rows))

    def mark_complete(self) -> None:
        """Note that every thread is in the index."""
        with self._transaction() as database:
            database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def open_ids(self) -> list[str]:
        """Return the threads that a writer held when it last wrote here."""
        with self._lock:
            found = self._database.execute("SELECT id FROM threads WHERE open")
            return [thread_id for (thread_id,) in found]

    def mark_open(self, thread_id: str) -> None:
        """Note that a row may be wrong from now on, and has to be made again after a crash."""
        with self._transaction() as database:
            database.execute("UPDATE threads SET open = 1 WHERE id = ?", (thread_id,))

    def rows_of(self, ids: Sequence[str]) -> dict[str, ThreadRow]:
        """Return rows by their ids, as far as they are there."""
        marks = ", ".join("?" * len(ids))
        statement = f"SELECT {_NAMES} FROM threads WHERE id IN ({marks})"
        with self._lock:
            found = self._database.execute(statement, tuple(ids)).fetchall()
        return {row.id: row for row in map(_row, found)}

    def forget(self, thread_id: str) -> None:
        """Remove one row."""
        with self._transaction() as database:
            database.execute("DELETE FROM threads WHERE id = ?", (thread_id,))

    def find(self, thread_id: str) -> ThreadRow | None:
        """Return one row, or None."""
        with self._lock:
            found = self._database.execute(
                f"SELECT {_NAMES} FROM threads WHERE id = ?", (thread_id,)
            ).fetchone()
        return None if found is None else _row(found)

    def page(self, query: ThreadQuery) -> ThreadPage:
        """Return one page of threads that have content.

        Raises:
            InvalidCursor: the cursor was not given out by a page of this order.
        """
        where, values = _conditions(query)
        order = "ASC" if query.ascending else "DESC"
        statement = (
            f"SELECT {_NAMES} FROM threads WHERE {' AND '.join(where)} "
            f"ORDER BY {query.sort_key} {order}, id {order} LIMIT ?"
        )
        with self._lock:
            found = self._database.execute(statement, (*values, query.limit + 1)).fetchall()
        rows = [_row(values) for values in found[: query.limit]]
        return ThreadPage(
            rows,
            next_cursor=_cursor(query.sort_key, rows[-1]) if len(found) > query.limit else None,
            backwards_cursor=_cursor(query.sort_key, rows[0]) if rows else None,
        )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._database:
            yield self._database


def _open(path: Path) -> tuple[sqlite3.Connection, bool]:
    try:
        database = _connect(path)
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version == SCHEMA_VERSION:
            return database, False
        database.close()
    except sqlite3.DatabaseError:
        pass
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    database = _connect(path)
    database.executescript(_SCHEMA)
    return database, True


def _connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(path, check_same_thread=False, timeout=10.0)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = NORMAL")
    return database


def _row(values: Sequence[Any]) -> ThreadRow:
    named = dict(zip(_COLUMNS, values, strict=True))
    named |= {"archived": bool(named["archived"]), "has_content": bool(named["has_content"])}
    return ThreadRow(**named)


def _conditions(query: ThreadQuery) -> tuple[list[str], list[Any]]:
    where = ["archived = ?", "has_content = 1"]
    values: list[Any] = [query.archived]
    for column, allowed in (
        ("model_provider", query.model_providers),
        ("source_kind", query.source_kinds),
        ("originator", query.originators),
        ("cwd", query.cwds),
    ):
        if allowed:
            where.append(f"{column} IN ({', '.join('?' * len(allowed))})")
            values.extend(allowed)
    if query.excluded:
        where.append(f"id NOT IN ({', '.join('?' * len(query.excluded))})")
        values.extend(query.excluded)
    if query.search:
        where.append("(instr(lower(coalesce(name, '')), ?) OR instr(lower(preview), ?))")
        values.extend([query.search.lower()] * 2)
    if query.name is not None:
        where.append("name = ?")
        values.append(query.name)
    if query.cursor is not None:
        where.append(f"({query.sort_key}, id) {'>' if query.ascending else '<'} (?, ?)")
        values.extend(_parse_cursor(query.sort_key, query.cursor))
    return where, values


def _cursor(sort_key: SortKey, row: ThreadRow) -> str:
    place = to_json([sort_key, getattr(row, sort_key), row.id])
    return base64.urlsafe_b64encode(place).decode()


def _parse_cursor(sort_key: SortKey, cursor: str) -> tuple[int, str]:
    try:
        place = from_json(base64.urlsafe_b64decode(cursor))
    except ValueError:
        raise InvalidCursor(cursor) from None
    match place:
        case [str(key), int(at_ms), str(thread_id)] if key == sort_key and abs(at_ms) < 1 << 63:
            return at_ms, thread_id
    raise InvalidCursor(cursor)
