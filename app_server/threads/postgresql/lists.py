"""Rows of threads in the database, and lists of them.

An append writes what changes of a row in its own statement, but for times and the preview: those
follow FLUSH_S later for other servers, and before any list of this one.
Source: docs/scale.md, "Tables"; docs/architecture.md, "Threads on disk".
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import anyio
import anyio.to_thread
from pydantic_core import to_json

from app_server.threads.failures import InvalidThreadId, ThreadNotFound, uuid_of
from app_server.threads.log.state import ThreadState
from app_server.threads.postgresql.database import Connection, Database, storable
from app_server.threads.postgresql.nodes import PostgresNodes
from app_server.threads.rows import (
    COLUMNS,
    ThreadPage,
    ThreadQuery,
    ThreadRow,
    Within,
    has_work,
    page_cursor,
    parse_page_cursor,
    row_of,
)
from app_server.threads.usage import NO_USAGE, UsageQuery, UsageSums, sum_of_rows
from protocol.cursors import InvalidCursor

logger = logging.getLogger(__name__)

FLUSH_S = 0.5
"""Seconds that rows may be behind for other servers."""

FEW_HITS = 400
"""Hits in names up to which they are looked up; for more, threads are walked in their order."""
_HITS = "SELECT found_names(%s, %s)"

_USAGE = """
SELECT id::text, usage FROM threads
WHERE tenant = (SELECT current_tenant()) AND usage <> %s
    AND (%s::uuid[] IS NULL OR id = ANY(%s::uuid[]))
"""

SHOWN = ", ".join("id::text" if name == "id" else name for name in COLUMNS)
"""The columns of a row, as a statement selects them."""
_GIVEN = ", ".join(COLUMNS[1:])
CHANGED = f"""
UPDATE threads SET ({_GIVEN}) = ROW ({", ".join(f"given.{name}" for name in COLUMNS[1:])}),
    has_work = coalesce(given.has_work, threads.has_work)
FROM json_populate_recordset(NULL::threads, %b::json) AS given
WHERE threads.id = given.id AND threads.tenant = (SELECT current_tenant())
"""
"""Writes rows that are there; takes what `as_json` makes."""
INSERTED = f"""
INSERT INTO threads (id, {_GIVEN}, owner, epoch)
SELECT id, {_GIVEN}, %b, 1 FROM json_populate_recordset(NULL::threads, %b::json)
ON CONFLICT DO NOTHING RETURNING epoch
"""
"""Begins a thread with an owner; takes that, and what `as_json` makes of its row."""


class WrittenRow(NamedTuple):
    """A row to be written."""

    row: ThreadRow
    has_work: bool | None = None
    """Whether a turn is open or input waits to become one; None: as it was."""


def final_row(state: ThreadState) -> WrittenRow:
    """Return the row of a thread that nobody writes now."""
    return WrittenRow(ThreadRow.of(state), has_work(state))


def as_json(rows: Iterable[WrittenRow]) -> str:
    """Render rows for a statement."""
    shown = []
    for row, work in rows:
        shown.append({name: storable(value) for name, value in asdict(row).items()})
        shown[-1]["has_work"] = work
    return to_json(shown).decode()


class PostgresLists:
    """Lists of all threads, with every change made before the call."""

    def __init__(self, database: Database, nodes: PostgresNodes) -> None:
        """Write rows of threads that are this server's, as `nodes` knows it."""
        self._database = database
        self._nodes = nodes
        self._behind: dict[str, ThreadState] = {}
        """Threads whose rows have to be written, by id."""
        self._changed = anyio.Event()
        self._flushing = anyio.Lock()
        self._fails = False

    def note_change(self, state: ThreadState) -> None:
        """Note that a thread that is loaded here has changed."""
        self._behind[state.id] = state
        self._changed.set()

    def forget(self, thread_id: str) -> None:
        """Write no row of a thread that is not loaded any more."""
        self._behind.pop(thread_id, None)

    async def changed(self) -> None:
        """Wait until there is something to write, and FLUSH_S for what comes after it."""
        await self._changed.wait()
        self._changed = anyio.Event()
        await anyio.sleep(FLUSH_S)

    async def flush(self) -> None:
        """Write the rows that are behind; what cannot be written now is tried again."""
        if not self._behind and not self._flushing.locked():
            return
        async with self._flushing:
            behind, self._behind = self._behind, {}
            if not behind:
                return
            rows = [WrittenRow(ThreadRow.of(state)) for state in behind.values()]
            try:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(self._write, rows)
            except OSError as exc:
                if not self._fails:
                    logger.warning("rows of lists are behind until they can be written: %s", exc)
                self._fails = True
                self._behind = {**behind, **self._behind}
                self._changed.set()
            else:
                self._fails = False

    def _write(self, rows: Sequence[WrittenRow]) -> None:
        with self._database.connection() as connection:
            statement = f"{CHANGED} AND threads.owner = %b"
            connection.execute(statement.encode(), (as_json(rows), self._nodes.id))

    async def find(self, thread_id: str) -> ThreadRow:
        """Return a thread's row without opening its log.

        Raises:
            ThreadNotFound
        """
        found = await self.rows_of([thread_id])
        if thread_id not in found:
            raise ThreadNotFound(thread_id)
        return found[thread_id]

    async def rows_of(self, ids: Sequence[str]) -> Mapping[str, ThreadRow]:
        """Return rows by their ids, as far as they are there."""
        await self.flush()
        return await anyio.to_thread.run_sync(self._rows_of, _uuids(ids))

    def _rows_of(self, ids: Sequence[UUID]) -> Mapping[str, ThreadRow]:
        with self._database.connection() as connection:
            found = connection.execute(f"SELECT {SHOWN} FROM threads WHERE id = ANY(%s)", (ids,))
            return {row.id: row for row in map(row_of, found)}

    async def page(self, query: ThreadQuery) -> ThreadPage:
        """Return one page of rows.

        Raises:
            InvalidCursor: the cursor was not given out by a page of this order.
        """
        await self.flush()
        return await anyio.to_thread.run_sync(partial(self._page, query))

    async def usage(self, query: UsageQuery) -> UsageSums:
        """Sum up the usage of one thread, or of all; see ThreadLists.usage."""
        await self.flush()
        return await anyio.to_thread.run_sync(self._usage, query)

    def _usage(self, query: UsageQuery) -> UsageSums:
        ids = None if query.thread_id is None else _uuids([query.thread_id])
        with self._database.connection() as connection:
            found = connection.execute(_USAGE, (NO_USAGE, ids, ids)).fetchall()
        return sum_of_rows(found, query)

    def _page(self, query: ThreadQuery) -> ThreadPage:
        where, values = _conditions(query)
        if query.search:
            pattern = containing(query.search.lower())
            with self._database.connection() as connection:
                hits = connection.execute(_HITS, (pattern, FEW_HITS + 1)).fetchall()
            if len(hits) <= FEW_HITS:
                where.append("id = ANY(%s)")
                values.append([row[0] for row in hits])
            else:
                where.append("(lower(name) LIKE %s OR lower(preview) LIKE %s)")
                values += [pattern, pattern]
        order = "ASC" if query.ascending else "DESC"
        # Said of a column that is never null, it would keep the index from being walked.
        nulls = _NULLS[order] if query.sort_key == "section_rank" else ""
        statement = (
            f"SELECT {SHOWN} FROM threads WHERE {' AND '.join(where)} "
            f"ORDER BY {query.sort_key} {order}{nulls}, id {order} LIMIT %s"
        )
        with self._database.connection() as connection:
            found = _fetched(connection, statement, [*values, query.limit + 1])
        rows = [row_of(row) for row in found[: query.limit]]
        more = len(found) > query.limit
        return ThreadPage(
            rows,
            next_cursor=page_cursor(query.sort_key, rows[-1]) if more else None,
            backwards_cursor=page_cursor(query.sort_key, rows[0]) if rows else None,
        )


_NULLS = {"ASC": " NULLS FIRST", "DESC": " NULLS LAST"}
"""As SQLite sorts them, so that both stores list alike."""


def _fetched(connection: Connection, statement: str, values: Sequence[Any]) -> list[Any]:
    return connection.execute(statement.encode(), values).fetchall()


def _uuids(ids: Iterable[str]) -> list[UUID]:
    """Return the ids that are any."""
    found = []
    for thread_id in ids:
        try:
            found.append(uuid_of(thread_id))
        except InvalidThreadId:
            continue
    return found


def _conditions(query: ThreadQuery) -> tuple[list[str], list[Any]]:
    where = ["tenant = (SELECT current_tenant())", "archived = %s", "has_content"]
    values: list[Any] = [query.archived]
    for column, allowed in (
        ("model_provider", query.model_providers),
        ("source_kind", query.source_kinds),
        ("originator", query.originators),
        ("cwd", query.cwds),
    ):
        if allowed:
            # Of one value an index has the order, too.
            where.append(f"{column} = %s" if len(allowed) == 1 else f"{column} = ANY(%s)")
            shown = [storable(value) for value in allowed]
            values.append(shown if len(shown) > 1 else shown[0])
    if query.excluded:
        where.append("id <> ALL(%s)")
        values.append(_uuids(query.excluded))
    for column, within in (("section_id", query.section), ("project_id", query.project)):
        if within is not None:
            where.append(_within(column, within, values))
    if query.parent is not None:
        where.append("parent_id = %s")
        values.append(storable(query.parent))
    if query.ancestor is not None:
        where.append(f"id IN ({_BELOW})")
        values.append(storable(query.ancestor))
    if query.name is not None:
        where.append("name = %s")
        values.append(storable(query.name))
    if query.cursor is not None:
        place, thread_id = parse_page_cursor(query.sort_key, query.cursor)
        where.append(f"({query.sort_key}, id) {'>' if query.ascending else '<'} (%s, %s)")
        values += [storable(place), cursor_id(thread_id, query.cursor)]
    return where, values


def cursor_id(thread_id: str, cursor: str) -> UUID:
    """Return the id in a cursor.

    Raises:
        InvalidCursor: it is none.
    """
    try:
        return uuid_of(thread_id)
    except InvalidThreadId:
        raise InvalidCursor(cursor) from None


def containing(text: str) -> str:
    """Return a pattern of LIKE for what has this text in it."""
    for special in "\\%_":
        text = text.replace(special, f"\\{special}")
    return f"%{storable(text)}%"


_BELOW = """
WITH RECURSIVE below (id) AS (
  SELECT id FROM threads WHERE parent_id = %s
  UNION SELECT threads.id FROM threads JOIN below ON threads.parent_id = below.id::text
) SELECT id FROM below"""


def _within(column: str, within: Within, values: list[Any]) -> str:
    if within.id is None:
        values.append(list(within.known))
        return f"({column} IS NULL OR {column} <> ALL(%s))"
    values.append(within.id if within.id in within.known else None)
    return f"{column} = %s"
