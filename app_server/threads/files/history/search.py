"""Searching what was said in all threads. Blocks.

Reads two copies of the logs at once: the texts of the history index, and the rows of the index of
threads. A term of few hits is looked up and its threads are sorted. For others threads are walked
in their order until the page is full: past the hits of a term that has some, and looking into each
thread for one that is everywhere. A term that is too short for trigrams is looked for in the first
threads, and then by the trigrams that it begins.
Source: docs/wire.md, "History and search".
"""

import threading
from pathlib import Path
from typing import Any

from app_server.runtime.files.sqlite import connect, identity
from app_server.threads.files.history.index import SLOTS
from app_server.threads.files.index.derived import index_failures
from app_server.threads.history.outlining import BETWEEN
from app_server.threads.history.search import (
    Found,
    SearchPage,
    SearchQuery,
    parse_search_cursor,
    search_cursor,
)
from app_server.threads.history.texts import excerpt, matches

FEW_HITS = 400
"""Pages of text up to which hits are looked up and sorted."""
SOME_HITS = 10_000
"""Pages of text up to which all hits are collected before threads are walked."""
FIRST_THREADS = 400
"""Threads that are looked into for a term that is too short for trigrams, before all others."""
MAX_TRIGRAMS = 300
"""Trigrams that such a term may begin; one that begins more is everywhere."""
_TRIGRAM = 3

_PAGES = f"rowid BETWEEN l.key * {SLOTS} AND l.key * {SLOTS} + {SLOTS - 1}"
_AMONG_HITS = f"+l.key IN (SELECT rowid / {SLOTS} FROM texts WHERE texts MATCH :match)"
_IN_THREAD = f"EXISTS (SELECT 1 FROM texts WHERE texts MATCH :match AND {_PAGES})"
_IN_TEXT = f"EXISTS (SELECT 1 FROM texts WHERE {_PAGES} AND holds(text, :term))"
_BY_HITS = f"""
SELECT t.id, t.{{sort}}, l.key
FROM (SELECT DISTINCT rowid / {SLOTS} AS key FROM texts WHERE texts MATCH :match) AS h
CROSS JOIN logs AS l ON l.key = h.key
CROSS JOIN listed.threads AS t ON t.id = l.thread_id
WHERE {{where}} ORDER BY t.{{sort}} {{order}}, t.id {{order}} LIMIT :limit
"""
_BY_WALK = """
SELECT t.id, t.{sort}, l.key
FROM listed.threads AS t
CROSS JOIN logs AS l ON l.thread_id = t.id
WHERE {where} AND {found}
ORDER BY t.{sort} {order}, t.id {order} LIMIT :limit
"""
_AMONG_FIRST = f"""
SELECT t.id, t.{{sort}}, l.key
FROM (
    SELECT * FROM listed.threads AS t WHERE {{where}}
    ORDER BY t.{{sort}} {{order}}, t.id {{order}} LIMIT :first
) AS t
CROSS JOIN logs AS l ON l.thread_id = t.id
WHERE {_IN_TEXT}
ORDER BY t.{{sort}} {{order}}, t.id {{order}} LIMIT :limit
"""


class ThreadSearch:
    """A connection that only reads; safe to call from any worker thread."""

    def __init__(self, history: Path, threads: Path) -> None:
        """Open both files, which must be there.

        Raises:
            OSError: a file cannot be opened.
        """
        self._path = history
        self._files = history, threads
        self._lock = threading.Lock()
        self._opened = list(map(identity, self._files))
        with index_failures(history):
            self._database = connect(history, synchronous="NORMAL")
            self._database.execute("ATTACH DATABASE ? AS listed", (str(threads),))
            self._database.create_function("holds", 2, _holds, deterministic=True)
            self._database.execute(
                "CREATE VIRTUAL TABLE temp.trigrams USING fts5vocab('main', 'texts', 'row')"
            )

    def is_current(self) -> bool:
        """Whether the opened files are still current; damaged ones are replaced."""
        return list(map(identity, self._files)) == self._opened

    def close(self) -> None:
        """Close the files."""
        with self._lock:
            self._database.close()

    def page(self, query: SearchQuery) -> SearchPage:
        """Return one page of threads with content in which the term was said.

        Raises:
            InvalidCursor: the cursor was not given out by a search in this order.
            OSError: the files cannot be read.
        """
        term = query.term.casefold()
        if BETWEEN in term:
            return SearchPage([], None, None)
        with index_failures(self._path), self._lock:
            found = self._found(query, term)
            shown = [
                Found(thread_id, self._snippet(key, term))
                for thread_id, _, key in found[: query.limit]
            ]
        more = len(found) > query.limit
        return SearchPage(
            shown,
            next_cursor=search_cursor(query, found[query.limit - 1]) if more else None,
            backwards_cursor=search_cursor(query, found[0]) if found else None,
        )

    def _found(self, query: SearchQuery, term: str) -> list[tuple[str, int, int]]:
        values: dict[str, Any] = {
            "match": _quoted(query.term),
            "term": term,
            "limit": query.limit + 1,
            "first": FIRST_THREADS,
        }
        shape = {
            "sort": query.sort_key,
            "order": "ASC" if query.ascending else "DESC",
            "where": _conditions(query, values),
        }
        if len(query.term) < _TRIGRAM:
            found = self._rows(_AMONG_FIRST.format(**shape), values)
            if len(found) > query.limit:
                return found
            trigrams = self._trigrams(query.term)
            if trigrams is None:
                return self._rows(_BY_WALK.format(found=_IN_TEXT, **shape), values)
            if not trigrams:
                return []
            values["match"] = " OR ".join(map(_quoted, trigrams))
        hits = self._hits(values)
        if hits > FEW_HITS:
            where = _IN_THREAD if hits > SOME_HITS else _AMONG_HITS
            return self._rows(_BY_WALK.format(found=where, **shape), values)
        return self._rows(_BY_HITS.format(**shape), values)

    def _rows(self, statement: str, values: dict[str, Any]) -> list[tuple[str, int, int]]:
        return self._database.execute(statement, values).fetchall()

    def _trigrams(self, term: str) -> list[str] | None:
        """Return the trigrams in any text that a short term begins; None if they do not say it."""
        low = term.lower()
        if len(low) != len(term) or low != term.casefold():
            return None
        found = self._database.execute(
            f"SELECT term FROM temp.trigrams WHERE term >= ? AND term < ? LIMIT {MAX_TRIGRAMS + 1}",
            (low, low + "\U0010ffff"),
        ).fetchall()
        return None if len(found) > MAX_TRIGRAMS else [trigram for (trigram,) in found]

    def _hits(self, values: dict[str, Any]) -> int:
        """Count pages of text that match, up to where it makes no difference."""
        (hits,) = self._database.execute(
            "SELECT count(*) FROM "
            f"(SELECT 1 FROM texts WHERE texts MATCH :match LIMIT {SOME_HITS + 1})",
            values,
        ).fetchone()
        return int(hits)

    def _snippet(self, key: int, term: str) -> str:
        pages = self._database.execute(
            "SELECT text FROM texts WHERE rowid BETWEEN ? AND ? ORDER BY rowid",
            (key * SLOTS, key * SLOTS + SLOTS - 1),
        )
        for (page,) in pages:
            for text in page.split(BETWEEN):
                for start, end in matches(text, term):
                    return excerpt(text, start, end).text
        return ""


def _conditions(query: SearchQuery, values: dict[str, Any]) -> str:
    where = ["t.archived = :archived", "t.has_content = 1"]
    values["archived"] = query.archived
    if query.source_kinds:
        names = {f"kind{number}": kind for number, kind in enumerate(query.source_kinds)}
        where.append(f"t.source_kind IN ({', '.join(f':{name}' for name in names)})")
        values |= names
    if query.cursor is not None:
        values["at_ms"], values["thread_id"] = parse_search_cursor(query, query.cursor)
        sign = ">" if query.ascending else "<"
        where.append(f"(t.{query.sort_key}, t.id) {sign} (:at_ms, :thread_id)")
    return " AND ".join(where)


def _quoted(term: str) -> str:
    return '"' + term.replace('"', '""') + '"'


def _holds(text: str, term: str) -> bool:
    return term in text.casefold()
