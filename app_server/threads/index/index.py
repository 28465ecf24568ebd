"""The index over all threads: lists and searches without opening a log. Everything here blocks.

The index is a copy: whatever it says can be made again from the rollouts. A row is marked `open`
while a writer holds its thread, so that after a crash only those rows are made again.
Source: docs/architecture.md, "Threads on disk".
"""

import base64
import errno
import os
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import Any, Literal, TypeAlias

from pydantic_core import from_json, to_json

from app_server.threads.codex.threads import Seen
from app_server.threads.index.sources import parent_of, source_kind
from app_server.threads.log.locks import LockBusy, SharedLock, WriterLock, short_lock
from app_server.threads.log.state import ThreadState
from protocol.model import WireModel

SCHEMA_VERSION = 2

SortKey: TypeAlias = Literal["created_at_ms", "updated_at_ms", "recency_at_ms", "section_rank"]


class IndexUnusable(OSError):
    """The index cannot be opened, read or written; the logs are as they were."""


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


COLUMNS = [column.name for column in fields(ThreadRow)]
_NAMES = ", ".join(COLUMNS)

_SCHEMA = f"""
CREATE TABLE threads ({", ".join(COLUMNS)}, open INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (id));
CREATE INDEX by_created ON threads (archived, has_content, created_at_ms, id);
CREATE INDEX by_updated ON threads (archived, has_content, updated_at_ms, id);
CREATE INDEX by_recency ON threads (archived, has_content, recency_at_ms, id);
CREATE INDEX by_section ON threads (section_id, section_rank, id) WHERE section_id IS NOT NULL;
CREATE INDEX by_project ON threads (project_id, recency_at_ms) WHERE project_id IS NOT NULL;
CREATE INDEX by_parent ON threads (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX by_attachments ON threads (id) WHERE attachments <> '[]';
CREATE INDEX by_open ON threads (id) WHERE open;
"""

_SEEN = f"CREATE TABLE IF NOT EXISTS seen ({', '.join(Seen._fields)}, PRIMARY KEY (thread_id))"

_INSERT = f"INSERT INTO threads ({_NAMES}, open) VALUES ({', '.join('?' * len(COLUMNS))}, ?)"
_ASSIGNMENTS = ", ".join(f"{name} = excluded.{name}" for name in [*COLUMNS[1:], "open"])
_UPSERT = f"{_INSERT} ON CONFLICT (id) DO UPDATE SET {_ASSIGNMENTS}"
_ADD = f"{_INSERT} ON CONFLICT (id) DO NOTHING"


class ThreadIndex:
    """One SQLite file in WAL mode; safe to call from any worker thread."""

    def __init__(self, path: Path) -> None:
        """Open the index, or make it.

        One of another version and one that is no database are thrown away, unless another process
        uses it. `is_new` says that there
        may be threads it does not know; one process at a time fills it, the others wait for that:
        `is_made_elsewhere`.

        Raises:
            IndexUnusable: the file cannot be made or opened.
            OSError: the folder cannot be made.
        """
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = path
        self._lock = threading.Lock()
        self._making: WriterLock | None = None
        self._use = SharedLock(path.with_name("users.lock"))
        try:
            with index_failures(path):
                self._database, self.is_new = self._open()
        except BaseException:
            self._use.release()
            raise

    @property
    def is_made_elsewhere(self) -> bool:
        """Whether another process fills it now."""
        return self.is_new and self._making is None

    def _open(self) -> tuple[sqlite3.Connection, bool]:
        # Nobody replaces the file while somebody else looks what it is.
        with short_lock(self._path.with_name("schema.lock")):
            database = _open(self._path, self._use)
            if _version(database) == SCHEMA_VERSION:
                return database, False
            with suppress(LockBusy):
                self._making = WriterLock(self._path.with_name("rebuild.lock"))
            return database, True

    def _stop_making(self) -> None:
        making, self._making = self._making, None
        if making is not None:
            making.release()

    def look_again(self) -> bool:
        """Whether what another process made is complete; take over if that one has died.

        Raises:
            OSError: the file cannot be opened.
        """
        with index_failures(self._path), self._lock:
            if _version(self._database) != SCHEMA_VERSION:
                self._database.close()
                self._database, self.is_new = self._open()
            else:
                self.is_new = False
            return not self.is_new

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()
            self._stop_making()
            self._use.release()

    def put(self, rows: Iterable[ThreadRow], *, is_open: bool) -> None:
        """Insert or replace rows, all or none; `is_open` says that a writer holds their threads."""
        with self._transaction() as database:
            database.executemany(_UPSERT, ((*astuple(row), is_open) for row in rows))

    def add(self, rows: Iterable[ThreadRow]) -> None:
        """Insert rows that no writer holds, where there is none yet."""
        with self._transaction() as database:
            database.executemany(_ADD, ((*astuple(row), False) for row in rows))

    def forget_unheld(self, thread_ids: Iterable[str]) -> None:
        """Remove rows, as far as no writer holds their threads."""
        with self._transaction() as database:
            database.executemany(
                "DELETE FROM threads WHERE id = ? AND NOT open",
                [(thread_id,) for thread_id in thread_ids],
            )

    def mark_complete(self) -> None:
        """Note that every thread is in the index."""
        with self._transaction() as database:
            database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        self.is_new = False
        self._stop_making()

    def open_ids(self) -> list[str]:
        """Return the threads that a writer held when it last wrote here."""
        with self._reading() as database:
            found = database.execute("SELECT id FROM threads WHERE open")
            return [thread_id for (thread_id,) in found]

    def own_ids(self) -> list[str]:
        """Return the threads that have a row and should have a log of ours."""
        with self._reading() as database:
            found = database.execute(
                "SELECT id FROM threads WHERE id NOT IN (SELECT thread_id FROM seen)"
            )
            return [thread_id for (thread_id,) in found]

    def mark_open(self, thread_id: str) -> None:
        """Note that a row may be wrong from now on, and has to be made again after a crash."""
        with self._transaction() as database:
            database.execute("UPDATE threads SET open = 1 WHERE id = ?", (thread_id,))

    def rows_of(self, ids: Sequence[str]) -> dict[str, ThreadRow]:
        """Return rows by their ids, as far as they are there."""
        marks = ", ".join("?" * len(ids))
        statement = f"SELECT {_NAMES} FROM threads WHERE id IN ({marks})"
        with self._reading() as database:
            found = database.execute(statement, tuple(ids)).fetchall()
        return {row.id: row for row in map(row_of, found)}

    def forget(self, thread_id: str) -> None:
        """Remove one row."""
        with self._transaction() as database:
            database.execute("DELETE FROM threads WHERE id = ?", (thread_id,))

    # Threads of another program, which are listed beside ours.

    def seen(self) -> list[Seen]:
        """Return the rollouts of Codex of which there are rows."""
        with self._reading() as database:
            found = database.execute(f"SELECT {', '.join(Seen._fields)} FROM seen")
            return [Seen(*values) for values in found]

    def put_seen(self, threads: list[tuple[ThreadState, Seen]]) -> None:
        """Insert or replace rows of threads of Codex, all or none."""
        with self._transaction() as database:
            rows = (ThreadRow.of(state) for state, _ in threads)
            database.executemany(_UPSERT, ((*astuple(row), False) for row in rows))
            places = ", ".join("?" * len(Seen._fields))
            database.executemany(
                f"INSERT OR REPLACE INTO seen VALUES ({places})", [seen for _, seen in threads]
            )

    def forget_seen(self, thread_ids: list[str], *, rows_too: bool) -> None:
        """Forget that threads are of Codex, `rows_too` with their rows."""
        values = [(thread_id,) for thread_id in thread_ids]
        with self._transaction() as database:
            database.executemany("DELETE FROM seen WHERE thread_id = ?", values)
            if rows_too:
                database.executemany("DELETE FROM threads WHERE id = ?", values)

    def find(self, thread_id: str) -> ThreadRow | None:
        """Return one row, or None."""
        with self._reading() as database:
            statement = f"SELECT {_NAMES} FROM threads WHERE id = ?"
            found = database.execute(statement, (thread_id,)).fetchone()
        return None if found is None else row_of(found)

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
        with self._reading() as database:
            found = database.execute(statement, (*values, query.limit + 1)).fetchall()
        rows = [row_of(values) for values in found[: query.limit]]
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
        with self._reading() as database:
            if before is not None:
                found = database.execute(
                    "SELECT section_rank FROM threads WHERE id = ? AND section_id = ?",
                    (before, section_id),
                ).fetchone()
                if found is None:
                    raise NotInSection(before)
                (high,) = found
                bound = " AND (section_rank, id) < (?, ?)"
                values.extend([high, before])
            (low,) = database.execute(
                f"SELECT max(section_rank) FROM threads WHERE section_id = ? AND id <> ?{bound}",
                values,
            ).fetchone()
        # Two processes may have given the same rank: the new one then goes behind both.
        return (low, high) if high is None or low is None or low < high else (low, None)

    def project_recency(self) -> Mapping[str, int]:
        """Return when an unarchived thread of each project was last active, in milliseconds."""
        with self._reading() as database:
            return dict(
                database.execute(
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
        with self._reading() as database:
            found = database.execute(
                "SELECT id, archived FROM threads WHERE attachments <> '[]' AND EXISTS "
                "(SELECT 1 FROM json_each(attachments) AS each WHERE each.value = json(?)) "
                f"AND id > ?{which} ORDER BY id LIMIT ?",
                (*values, limit),
            ).fetchall()
        return [Owner(thread_id, bool(is_archived)) for thread_id, is_archived in found]

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with index_failures(self._path), self._lock, self._database:
            yield self._database

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        with index_failures(self._path), self._lock:
            yield self._database


def _open(path: Path, use: SharedLock) -> sqlite3.Connection:
    """Open the file if it has tables of this version, complete or not; else begin it anew."""
    try:
        database = _connect(path)
        if abs(_version(database)) == SCHEMA_VERSION:
            database.execute(_SEEN)
            return database
        database.close()
    except sqlite3.OperationalError:
        # Locked, full or read-only: nothing is wrong with what is in it.
        raise
    except sqlite3.DatabaseError:
        pass
    if not use.is_only_one():
        problem = "another process uses it, of another version; stop that, or use another home"
        raise IndexUnusable(errno.EBUSY, problem, str(path))
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    database = _connect(path)
    database.executescript(f"BEGIN; {_SCHEMA} {_SEEN}; PRAGMA user_version = {-SCHEMA_VERSION};")
    database.commit()
    return database


def _version(database: sqlite3.Connection) -> int:
    """Return the version of the tables: SCHEMA_VERSION, less than 0 while they are filled."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    return int(version)


def keep_private(path: Path) -> None:
    """Make a file for SQLite, or take away what others may do with it and with its companions.

    What cannot be changed stays as it is: opening it says why.
    """
    with suppress(OSError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    # SQLite gives its companions the rights of the file.
    for suffix in ("", "-wal", "-shm"):
        file = path.with_name(path.name + suffix)
        with suppress(OSError):
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


def _connect(path: Path) -> sqlite3.Connection:
    keep_private(path)
    database = sqlite3.connect(path, check_same_thread=False, timeout=10.0)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        database.close()
        raise
    return database


_ERRNO = {
    sqlite3.SQLITE_FULL: errno.ENOSPC,
    sqlite3.SQLITE_PERM: errno.EACCES,
    sqlite3.SQLITE_READONLY: errno.EROFS,
    sqlite3.SQLITE_CANTOPEN: errno.EACCES,
    sqlite3.SQLITE_BUSY: errno.EBUSY,
}


@contextmanager
def index_failures(path: Path) -> Iterator[None]:
    """Translate failures of SQLite into those of a disk."""
    try:
        yield
    except sqlite3.Error as exc:
        # The low byte is the kind of failure, the others are details.
        code = getattr(exc, "sqlite_errorcode", sqlite3.SQLITE_IOERR) & 0xFF
        number = _ERRNO.get(code, errno.EIO)
        raise IndexUnusable(number, str(exc), str(path)) from exc


def row_of(values: Sequence[Any]) -> ThreadRow:
    """Return the row that the values of COLUMNS are."""
    named = dict(zip(COLUMNS, values, strict=True))
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
