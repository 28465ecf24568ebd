"""Lists of threads, read from the index. Everything here blocks."""

from collections.abc import Sequence
from typing import Any

from pydantic_core import from_json, to_json

from app_server.runtime.files.sqlite import damaged
from app_server.threads.index.derived import sum_of
from app_server.threads.index.file import IndexFile
from app_server.threads.index.query import (
    SortKey,
    ThreadPage,
    ThreadQuery,
    Within,
)
from app_server.threads.index.rows import COLUMN_NAMES, ThreadRow, row_of
from protocol.cursors import InvalidCursor, parse_cursor, render_cursor


class ThreadLists(IndexFile):
    """Reads rows of an index; safe to call from any worker thread."""

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
            next_cursor=_cursor(query.sort_key, rows[-1]) if len(found) > query.limit else None,
            backwards_cursor=_cursor(query.sort_key, rows[0]) if rows else None,
        )

    def rows_of(self, ids: Sequence[str]) -> dict[str, ThreadRow]:
        """Return rows by their ids, as far as they are there."""
        marks = ", ".join("?" * len(ids))
        statement = f"SELECT {COLUMN_NAMES}, sum FROM threads WHERE id IN ({marks})"
        with self.reading() as database:
            found = database.execute(statement, tuple(ids)).fetchall()
            return {row.id: row for row in map(_intact, found)}


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
    return render_cursor(sort_key, getattr(row, sort_key), row.id)


def _parse_cursor(sort_key: SortKey, cursor: str) -> tuple[int | str, str]:
    match parse_cursor(cursor):
        case [str(key), int(at_ms), str(thread_id)] if key == sort_key and abs(at_ms) < 1 << 63:
            return at_ms, thread_id
        case ["section_rank", str(rank), str(thread_id)] if sort_key == "section_rank":
            return rank, thread_id
    raise InvalidCursor(cursor)
