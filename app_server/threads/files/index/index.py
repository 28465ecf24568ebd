"""The index over all threads: lists and searches without opening a log. Everything here blocks.

The index is a copy: whatever it says can be made again from the rollouts. A row is marked `open`
while a writer holds its thread, so that after a crash only those rows are made again.
Source: docs/architecture.md, "Threads on disk".
"""

import errno
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import astuple
from itertools import chain, islice
from pathlib import Path
from sqlite3 import Connection
from typing import Any

from pydantic_core import from_json, to_json

from app_server.runtime.files.sqlite import damaged, version_of
from app_server.threads.files.codex.rollouts import SeenRollout
from app_server.threads.files.index.derived import DerivedFile, IndexUnusable, once_more, sum_of
from app_server.threads.files.locks import LockBusy, SharedLock, WriterLock
from app_server.threads.log.state import ThreadState
from app_server.threads.rows import (
    COLUMN_NAMES,
    COLUMNS,
    ThreadPage,
    ThreadQuery,
    ThreadRow,
    Within,
    page_cursor,
    parse_page_cursor,
    row_of,
)
from app_server.threads.usage import NO_USAGE, UsageQuery, UsageSums, sum_of_rows

SCHEMA_VERSION = 4

_SCHEMA = f"""
CREATE TABLE threads (
    {", ".join(COLUMNS)}, sum INTEGER, open INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (id)
);
CREATE INDEX by_created ON threads (archived, has_content, created_at_ms, id);
CREATE INDEX by_updated ON threads (archived, has_content, updated_at_ms, id);
CREATE INDEX by_recency ON threads (archived, has_content, recency_at_ms, id);
CREATE INDEX by_section ON threads (section_id, section_rank, id) WHERE section_id IS NOT NULL;
CREATE INDEX by_project ON threads (project_id, recency_at_ms) WHERE project_id IS NOT NULL;
CREATE INDEX by_parent ON threads (parent_id) WHERE parent_id IS NOT NULL;
CREATE INDEX by_attachments ON threads (id) WHERE attachments <> '[]';
CREATE INDEX by_open ON threads (id) WHERE open;
CREATE TABLE seen ({", ".join(SeenRollout._fields)}, sum INTEGER, PRIMARY KEY (thread_id));
"""

ROWS_AT_ONCE = 64
"""Written by one statement. Each statement gives the interpreter's lock away and waits to have it
back, up to sys.getswitchinterval() beside a busy event loop; so a row is none of its own."""

_VALUES = f"({', '.join('?' * (len(COLUMNS) + 2))})"
_ASSIGNMENTS = ", ".join(f"{name} = excluded.{name}" for name in [*COLUMNS[1:], "sum", "open"])
_REPLACE = f"ON CONFLICT (id) DO UPDATE SET {_ASSIGNMENTS}"
_HOLD = "ON CONFLICT (id) DO UPDATE SET open = 1"
_KEEP = "ON CONFLICT (id) DO NOTHING"


class ThreadIndex(DerivedFile):
    """Rows of all threads in one file; safe to call from any worker thread.

    One process at a time fills the file, and the others wait for that.
    """

    def __init__(self, path: Path) -> None:
        """Open the index, or make it.

        One of another version is thrown away, unless another process uses it; a damaged one is.

        Raises:
            IndexUnusable: the file cannot be made or opened.
            OSError: the folder cannot be made.
        """
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._making: WriterLock | None = None
        self._use = SharedLock(path.with_name("users.lock"))
        try:
            super().__init__(path, _SCHEMA, SCHEMA_VERSION, lock="schema.lock")
        except BaseException:
            self._use.release()
            raise

    @property
    def is_made_elsewhere(self) -> bool:
        """Whether another process fills it now."""
        return self.is_new and self._making is None

    def _take_part(self) -> None:
        if self.is_new and self._making is None:
            with suppress(LockBusy):
                self._making = WriterLock(self._path.with_name("rebuild.lock"))

    def _require_replaceable(self) -> None:
        if not self._use.is_only_one():
            problem = "another process uses it, of another version; stop that, or use another home"
            raise IndexUnusable(errno.EBUSY, problem, str(self._path))

    def _stop_making(self) -> None:
        making, self._making = self._making, None
        if making is not None:
            making.release()

    def look_again(self) -> bool:
        """Whether another process has completed the index; take over if that one has died.

        Raises:
            OSError: the file cannot be opened.
        """
        with self.reading() as database:
            self.is_new = version_of(database) != SCHEMA_VERSION
            self._take_part()
            return not self.is_new

    def close(self) -> None:
        """Close the file."""
        super().close()
        self._stop_making()
        self._use.release()

    def mark_complete(self, generation: int | None = None) -> None:
        """Note that every thread is in the file; see DerivedFile.

        Raises:
            IndexReplaced: the file of this `generation` is gone.
        """
        super().mark_complete(generation)
        self._stop_making()

    def _check_rows(self, database: sqlite3.Connection) -> None:
        for *values, written in database.execute(f"SELECT {COLUMN_NAMES}, sum FROM threads"):
            if sum_of(values) != written:
                raise damaged("a row is not what was written")

    # Lists.

    def find(self, thread_id: str) -> ThreadRow | None:
        """Return one row, or None."""
        with self.reading() as database:
            statement = f"SELECT {COLUMN_NAMES}, sum FROM threads WHERE id = ?"
            found = database.execute(statement, (thread_id,)).fetchone()
            return None if found is None else _intact(found)

    def page(self, query: ThreadQuery) -> ThreadPage:
        """Return one page of threads that have content.

        Raises:
            InvalidCursor: the cursor was not given out by a page of this order.
        """
        where, values = _conditions(query)
        order = "ASC" if query.ascending else "DESC"
        statement = (
            f"SELECT {COLUMN_NAMES}, sum FROM threads WHERE {' AND '.join(where)} "
            f"ORDER BY {query.sort_key} {order}, id {order} LIMIT ?"
        )
        # One row of JSON, as each row that is fetched waits for the interpreter's lock once more.
        at_once = f"SELECT json_group_array(json_array({COLUMN_NAMES}, sum)) FROM ({statement})"
        with self.reading() as database:
            (text,) = database.execute(at_once, (*values, query.limit + 1)).fetchone()
            found = _parsed(text)
            rows = [_intact(values) for values in found[: query.limit]]
        return ThreadPage(
            rows,
            next_cursor=page_cursor(query.sort_key, rows[-1]) if len(found) > query.limit else None,
            backwards_cursor=page_cursor(query.sort_key, rows[0]) if rows else None,
        )

    def rows_of(self, ids: Sequence[str]) -> dict[str, ThreadRow]:
        """Return rows by their ids, as far as they are there."""
        marks = ", ".join("?" * len(ids))
        statement = f"SELECT {COLUMN_NAMES}, sum FROM threads WHERE id IN ({marks})"
        with self.reading() as database:
            found = database.execute(statement, tuple(ids)).fetchall()
            return {row.id: row for row in map(_intact, found)}

    def usage(self, query: UsageQuery) -> UsageSums:
        """Sum up the usage of one thread, or of all."""
        where = "usage <> ?" if query.thread_id is None else "usage <> ? AND id = ?"
        values = [NO_USAGE, *([] if query.thread_id is None else [query.thread_id])]
        with self.reading() as database:
            found = database.execute(f"SELECT id, usage FROM threads WHERE {where}", values)
            return sum_of_rows(found, query)

    # Changes.

    @once_more
    def put(self, rows: Iterable[ThreadRow], *, is_open: bool) -> None:
        """Insert or replace rows, all or none; `is_open` says that a writer holds their threads."""
        with self.transaction() as database:
            _insert(database, rows, _REPLACE, is_open=is_open)

    @once_more
    def add(self, rows: Iterable[ThreadRow]) -> None:
        """Insert rows that no writer holds, where there is none yet."""
        with self.transaction() as database:
            _insert(database, rows, _KEEP, is_open=False)

    @once_more
    def hold(self, rows: Iterable[ThreadRow]) -> None:
        """Mark threads as held by a writer; threads without a row get these rows."""
        with self.transaction() as database:
            _insert(database, rows, _HOLD, is_open=True)

    @once_more
    def forget_unheld(self, thread_ids: Iterable[str]) -> None:
        """Remove rows, as far as no writer holds their threads."""
        with self.transaction() as database:
            database.executemany(
                "DELETE FROM threads WHERE id = ? AND NOT open",
                [(thread_id,) for thread_id in thread_ids],
            )

    @once_more
    def open_ids(self) -> list[str]:
        """Return the threads that a writer held when it last wrote here."""
        with self.reading() as database:
            found = database.execute("SELECT id FROM threads WHERE open")
            return [thread_id for (thread_id,) in found]

    @once_more
    def own_ids(self) -> list[str]:
        """Return the threads that have a row and should have a log of ours."""
        with self.reading() as database:
            found = database.execute(
                "SELECT id FROM threads WHERE id NOT IN (SELECT thread_id FROM seen)"
            )
            return [thread_id for (thread_id,) in found]

    @once_more
    def mark_open(self, thread_id: str) -> None:
        """Note that a row may be wrong from now on, and has to be made again after a crash."""
        with self.transaction() as database:
            database.execute("UPDATE threads SET open = 1 WHERE id = ?", (thread_id,))

    @once_more
    def forget(self, thread_id: str) -> None:
        """Remove one row."""
        with self.transaction() as database:
            database.execute("DELETE FROM threads WHERE id = ?", (thread_id,))

    # Threads of another program, which are listed beside ours.

    def seen(self) -> list[SeenRollout]:
        """Return the rollouts of Codex of which there are rows."""
        with self.reading() as database:
            found = database.execute(
                f"SELECT {', '.join(SeenRollout._fields)}, sum FROM seen"
            ).fetchall()
            if any(sum_of(values) != written for *values, written in found):
                raise damaged("a row is not what was written")
            return [SeenRollout(*values) for *values, _ in found]

    def put_seen(self, threads: list[tuple[ThreadState, SeenRollout]]) -> None:
        """Insert or replace rows of threads of Codex, all or none."""
        with self.transaction() as database:
            rows = (ThreadRow.of(state) for state, _ in threads)
            _insert(database, rows, _REPLACE, is_open=False)
            places = ", ".join("?" * (len(SeenRollout._fields) + 1))
            database.executemany(
                f"INSERT OR REPLACE INTO seen VALUES ({places})",
                [(*seen, sum_of(seen)) for _, seen in threads],
            )

    def forget_seen(self, thread_ids: list[str], *, rows_too: bool) -> None:
        """Forget that threads are of Codex, `rows_too` with their rows."""
        values = [(thread_id,) for thread_id in thread_ids]
        with self.transaction() as database:
            database.executemany("DELETE FROM seen WHERE thread_id = ?", values)
            if rows_too:
                database.executemany("DELETE FROM threads WHERE id = ?", values)


def _parsed(text: str) -> list[list[Any]]:
    try:
        found: list[list[Any]] = from_json(text)
    except ValueError:
        raise damaged("a row is no JSON") from None
    return found


def _intact(found: Sequence[Any]) -> ThreadRow:
    """Return the row of these values, the last of which is their sum."""
    values = found[:-1]
    if sum_of(values) != found[-1]:
        raise damaged("a row is not what was written")
    return row_of(values)


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
        values.extend(parse_page_cursor(query.sort_key, query.cursor))
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


def _insert(
    database: Connection, rows: Iterable[ThreadRow], conflict: str, *, is_open: bool
) -> None:
    """Insert rows in batches; `conflict` is the SQL clause for rows that exist."""
    left = map(_stored, rows)
    while some := [(*values, sum_of(values), is_open) for values in islice(left, ROWS_AT_ONCE)]:
        places = ", ".join([_VALUES] * len(some))
        database.execute(
            f"INSERT INTO threads ({COLUMN_NAMES}, sum, open) VALUES {places} {conflict}",
            list(chain.from_iterable(some)),
        )


def _stored(row: ThreadRow) -> list[Any]:
    """Return the values of a row as they are read again: SQLite has no booleans."""
    return [int(value) if isinstance(value, bool) else value for value in astuple(row)]
