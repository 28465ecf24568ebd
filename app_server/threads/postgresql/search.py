"""Searching what was said in all threads. Blocks.

Texts are kept case-folded beside what was said, with an index of trigrams: both stores find the
same. A term of few hits is looked up and its threads are sorted; for others threads are walked in
their order until the page is full.
Source: docs/wire.md, "History and search".
"""

from typing import Any
from uuid import UUID

from app_server.threads.history.outlining import BETWEEN
from app_server.threads.history.search import (
    Found,
    SearchPage,
    SearchQuery,
    parse_search_cursor,
    search_cursor,
)
from app_server.threads.history.texts import excerpt, matches
from app_server.threads.postgresql.database import Connection, Database, storable
from app_server.threads.postgresql.lists import containing, cursor_id

FEW_HITS = 4_000
"""Hits up to which they are looked up: of 1,000,000 threads as costly as the walk for more."""

_HITS = "SELECT found_texts(%s, %s)"
_LISTED = "t.tenant = (SELECT current_tenant()) AND {where}"
_BY_HITS = f"""
SELECT t.id, t.{{sort}} FROM threads AS t
WHERE t.id = ANY(%s) AND {_LISTED} ORDER BY t.{{sort}} {{order}}, t.id {{order}} LIMIT %s
"""
# Asked of each thread, until the page is full: EXISTS would be planned as a join with all hits.
# No index of trigrams, which the owner of the tables could use: `folded || ''` is in none.
_BY_WALK = f"""
SELECT t.id, t.{{sort}} FROM threads AS t
WHERE (
    SELECT true FROM texts
    WHERE texts.tenant = t.tenant AND texts.thread_id = t.id AND (folded || '') LIKE %s LIMIT 1
) AND {_LISTED}
ORDER BY t.{{sort}} {{order}}, t.id {{order}} LIMIT %s
"""


def search_page(database: Database, query: SearchQuery) -> SearchPage:
    """Return one page of threads with content in which the term was said.

    Raises:
        InvalidCursor: the cursor was not given out by a search in this order.
        StoreUnavailable
    """
    term = query.term.casefold()
    if BETWEEN in term:
        return SearchPage([], None, None)
    with database.connection() as connection:
        found = _found(connection, query, term)
        shown = [
            Found(str(thread_id), _snippet(connection, thread_id, term))
            for thread_id, _ in found[: query.limit]
        ]
    rows = [(str(thread_id), at_ms) for thread_id, at_ms in found]
    more = len(found) > query.limit
    return SearchPage(
        shown,
        next_cursor=search_cursor(query, rows[query.limit - 1]) if more else None,
        backwards_cursor=search_cursor(query, rows[0]) if rows else None,
    )


def _found(connection: Connection, query: SearchQuery, term: str) -> list[tuple[UUID, int]]:
    pattern = containing(term)
    where, values = _conditions(query)
    hits = [row[0] for row in connection.execute(_HITS, (pattern, FEW_HITS + 1))]
    are_few = len(hits) <= FEW_HITS
    shape = _BY_HITS if are_few else _BY_WALK
    order = "ASC" if query.ascending else "DESC"
    statement = shape.format(sort=query.sort_key, order=order, where=where)
    first = hits if are_few else pattern
    found = connection.execute(statement.encode(), [first, *values, query.limit + 1])
    return [(row[0], row[1]) for row in found]


def _conditions(query: SearchQuery) -> tuple[str, list[Any]]:
    where = ["t.archived = %s", "t.has_content"]
    values: list[Any] = [query.archived]
    if query.source_kinds:
        where.append("t.source_kind = ANY(%s)")
        values.append([storable(kind) for kind in query.source_kinds])
    if query.cursor is not None:
        at_ms, thread_id = parse_search_cursor(query, query.cursor)
        where.append(f"(t.{query.sort_key}, t.id) {'>' if query.ascending else '<'} (%s, %s)")
        values += [at_ms, cursor_id(thread_id, query.cursor)]
    return " AND ".join(where), values


def _snippet(connection: Connection, thread_id: UUID, term: str) -> str:
    pages = connection.execute(
        "SELECT text FROM texts WHERE tenant = (SELECT current_tenant()) AND thread_id = %s "
        "ORDER BY page",
        (thread_id,),
    )
    for (page,) in pages:
        for text in page.split(BETWEEN):
            for start, end in matches(text, term):
                return excerpt(text, start, end).text
    return ""
