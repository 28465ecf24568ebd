"""The index over all threads: lists and searches without opening a log. Everything here blocks.

The index is a copy: whatever it says can be made again from the rollouts. A row is marked `open`
while a writer holds its thread, so that after a crash only those rows are made again.
Source: docs/architecture.md, "Threads on disk".
"""

import base64
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic_core import from_json, to_json

from app_server.threads.sources import parent_of, source_kind
from app_server.threads.state import ThreadState
from protocol.model import WireModel

SCHEMA_VERSION = 2

SortKey: TypeAlias = Literal["created_at_ms", "updated_at_ms", "recency_at_ms", "section_rank"]


class InvalidCursor(Exception):
    """A cursor that no page of ours has given out."""


class NotInSection(Exception):
    """A thread is not where it was believed to be."""


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
    parent_id: str | None
    project_id: str | None
    section_id: str | None
    section_rank: str | None
    section_entered_at_ms: int | None
    git_info: str | None
    """JSON, as the wire has it; so are the next two."""
    read_state: str | None
    attachments: str
    """Type and key of each."""
    daybreak_enabled: bool | None

    @classmethod
    def of(cls, state: ThreadState) -> "ThreadRow":
        """Summarize a thread."""
        created, settings, metadata = state.created, state.settings, state.metadata
        attachments = [[a.attachment_type, a.identity_key] for a in metadata.attachments]
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
            source_kind=source_kind(created.source),
            originator=created.originator,
            cli_version=created.cli_version,
            thread_source=created.thread_source,
            parent_id=parent_of(created.source),
            project_id=metadata.project_id,
            section_id=metadata.section_id,
            section_rank=metadata.section_rank,
            section_entered_at_ms=metadata.section_entered_at_ms,
            git_info=_json(metadata.git_info),
            read_state=_json(metadata.read_state),
            attachments=to_json(attachments).decode(),
            daybreak_enabled=metadata.daybreak_enabled,
        )


def _json(value: WireModel | None) -> str | None:
    return None if value is None else value.model_dump_json()


@dataclass(frozen=True, slots=True)
class Within:
    """Where threads are filed: in one place, or (None) in none of the places that there are."""

    id: str | None
    known: Sequence[str]
    """All places; threads may still name one that was deleted."""


@dataclass(frozen=True, slots=True)
class Owner:
    """A thread that has an attachment."""

    id: str
    archived: bool


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
    section: Within | None = None
    project: Within | None = None
    parent: str | None = None
    """Only threads that this one started."""
    ancestor: str | None = None
    """Only threads that this one started, or that those did, and so on."""
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
CREATE INDEX by_section ON threads (section_id, section_rank, id) WHERE section_id IS NOT NULL;
CREATE INDEX by_project ON threads (project_id, recency_at_ms) WHERE project_id IS NOT NULL;
CREATE INDEX by_parent ON threads (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX by_attachments ON threads (id) WHERE attachments <> '[]';
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

    def neighbours(
        self, section_id: str, moved: str, before: str | None
    ) -> tuple[str | None, str | None]:
        """Return the ranks between which a thread goes: before another one, or at the end.

        Raises:
            NotInSection: the other thread is not in this section.
        """
        bound = ""
        values: list[Any] = [section_id, moved]
        high = None
        with self._lock:
            if before is not None:
                found = self._database.execute(
                    "SELECT section_rank FROM threads WHERE id = ? AND section_id = ?",
                    (before, section_id),
                ).fetchone()
                if found is None:
                    raise NotInSection(before)
                (high,) = found
                bound = " AND (section_rank, id) < (?, ?)"
                values.extend([high, before])
            (low,) = self._database.execute(
                f"SELECT max(section_rank) FROM threads WHERE section_id = ? AND id <> ?{bound}",
                values,
            ).fetchone()
        # Two processes may have given the same rank: the new one then goes behind both.
        return (low, high) if high is None or low is None or low < high else (low, None)

    def project_recency(self) -> Mapping[str, int]:
        """Return when an unarchived thread of each project was last active, in milliseconds."""
        with self._lock:
            return dict(
                self._database.execute(
                    "SELECT project_id, max(recency_at_ms) FROM threads "
                    "WHERE project_id IS NOT NULL AND NOT archived AND has_content "
                    "GROUP BY project_id"
                ).fetchall()
            )

    def owners(
        self, attachment: tuple[str, str], archived: bool | None, after: str, limit: int
    ) -> Sequence[Owner]:
        """Return threads with an attachment of this type and key, by id, from `after` on."""
        which = "" if archived is None else " AND archived = ?"
        values = [to_json(attachment).decode(), after, *([] if archived is None else [archived])]
        with self._lock:
            found = self._database.execute(
                "SELECT id, archived FROM threads WHERE attachments <> '[]' AND EXISTS "
                "(SELECT 1 FROM json_each(attachments) AS each WHERE each.value = json(?)) "
                f"AND id > ?{which} ORDER BY id LIMIT ?",
                (*values, limit),
            ).fetchall()
        return [Owner(thread_id, bool(is_archived)) for thread_id, is_archived in found]

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
    if named["daybreak_enabled"] is not None:
        named["daybreak_enabled"] = bool(named["daybreak_enabled"])
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
    for column, within in (("section_id", query.section), ("project_id", query.project)):
        if within is not None:
            where.append(_within(column, within, values))
    if query.parent is not None:
        where.append("parent_id = ?")
        values.append(query.parent)
    if query.ancestor is not None:
        where.append(f"id IN ({_BELOW})")
        values.append(query.ancestor)
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


_BELOW = """
WITH RECURSIVE below (id) AS (
  SELECT id FROM threads WHERE parent_id = ?
  UNION SELECT threads.id FROM threads JOIN below ON threads.parent_id = below.id
) SELECT id FROM below"""


def _within(column: str, within: Within, values: list[Any]) -> str:
    if within.id is None:
        values.append(to_json(list(within.known)).decode())
        return f"({column} IS NULL OR {column} NOT IN (SELECT value FROM json_each(?)))"
    values.append(within.id if within.id in within.known else None)
    return f"{column} = ?"


def _cursor(sort_key: SortKey, row: ThreadRow) -> str:
    place = to_json([sort_key, getattr(row, sort_key), row.id])
    return base64.urlsafe_b64encode(place).decode()


def _parse_cursor(sort_key: SortKey, cursor: str) -> tuple[int | str, str]:
    try:
        place = from_json(base64.urlsafe_b64decode(cursor))
    except ValueError:
        raise InvalidCursor(cursor) from None
    match place:
        case [str(key), int(at_ms), str(thread_id)] if key == sort_key and abs(at_ms) < 1 << 63:
            return at_ms, thread_id
        case ["section_rank", str(rank), str(thread_id)] if sort_key == "section_rank":
            return rank, thread_id
    raise InvalidCursor(cursor)
