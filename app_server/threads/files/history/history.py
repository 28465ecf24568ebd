"""The history of all threads, for those who page and search it.

The index behind it follows the logs: threads that changed are taken in, in groups, at the latest
before the next search; a page of one thread looks at its log itself. All disk work runs in worker
threads.

A search reads two copies of the logs at once: the texts of the history index, and the rows of the
index of threads. A term of few hits is looked up and its threads are sorted. For others threads are
walked in their order until the page is full: past the hits of a term that has some, and looking
into each thread for one that is everywhere. A term that is too short for trigrams is looked for in
the first threads, and then by the trigrams that it begins.
Source: docs/architecture.md, "Threads on disk"; docs/wire.md, "History and search".
"""

import logging
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar, TypeVarTuple

import anyio
import anyio.to_thread

from app_server.runtime.files.sqlite import connect, identity
from app_server.threads.failures import ThreadNotFound
from app_server.threads.files.codex.copies import CodexCopies
from app_server.threads.files.codex.threads import NoCodexThread
from app_server.threads.files.history.index import SLOTS, HistoryIndex
from app_server.threads.files.index.derived import IndexDamaged, IndexReplaced, index_failures
from app_server.threads.files.index.listing import Listing
from app_server.threads.files.index.rebuild import changed_logs, written_ns
from app_server.threads.files.writers import FileLog, LogPaths
from app_server.threads.history.outlining import BETWEEN, item_in
from app_server.threads.history.pages import HistoryReader
from app_server.threads.history.search import (
    Found,
    SearchPage,
    SearchQuery,
    parse_search_cursor,
    search_cursor,
)
from app_server.threads.history.texts import excerpt, matches
from app_server.threads.log.faults import log_failures
from app_server.threads.log.outline import ItemPlace, TurnOutline
from app_server.threads.log.reading import read_created, usage_in
from app_server.threads.rows import ThreadRow
from protocol.log.rollout import UsageRecorded
from protocol.turns.items import ThreadItem

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


logger = logging.getLogger(__name__)

FOLLOW_STEP = 50
"""Threads a transaction of the index."""

TRIES = 3
"""Of a question, while the index is begun anew under it."""

RETRY_S = 5.0
"""Between two attempts to make an index that could not be written."""

Answer = TypeVar("Answer")
Arguments = TypeVarTuple("Arguments")


_BATCH = 32


class FileHistoryReader:
    """One thread's log and what the index knows of it; for the length of one request."""

    def __init__(self, index: HistoryIndex, thread_id: str, path: Path) -> None:
        """Bring the index up to date.

        Raises:
            FileNotFoundError: there is no such log.
            OSError: it cannot be read.
        """
        self._index = index
        self.thread_id = thread_id
        self._key, self.written_at_ms = index.caught_up(thread_id, path)
        self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def item(self, place: ItemPlace) -> ThreadItem | None:
        """Read an item; None if its line is damaged."""
        return item_in(os.pread(self._file, place.length, place.offset))

    def turn(self, turn_id: str) -> TurnOutline | None:
        """Find a turn."""
        return self._index.turn(self._key, turn_id)

    def walk(self, number: int | None, *, ascending: bool) -> Iterator[TurnOutline]:
        """Walk turns from a number on, itself included; None begins at the end or the beginning."""
        bound = number
        while True:
            batch = self._index.turns(
                self._key,
                below=None if ascending or bound is None else bound + 1,
                above=None if not ascending else (0 if bound is None else bound) - 1,
                limit=_BATCH,
            )
            yield from batch
            if len(batch) < _BATCH:
                return
            bound = batch[-1].number + (1 if ascending else -1)


class FileHistory:
    """History of all threads, loaded or not, those of Codex too."""

    def __init__(self, folder: Path, paths: LogPaths, lists: Listing, copies: CodexCopies) -> None:
        """`folder` holds the index."""
        self._path = folder / "history.sqlite3"
        self._paths = paths
        self._lists = lists
        self._copies = copies
        self._index: HistoryIndex | None = None
        self._search: ThreadSearch | None = None
        self._finding = threading.Lock()
        self._searchable = anyio.Event()
        self.behind: dict[str, None] = {}
        """Ids of the threads whose logs have grown since the history was brought up to date."""
        self._following = anyio.Lock()
        self._fails = False
        self._lost = anyio.Event()
        self._written_ns = 0

    async def open(self, behind: Iterable[str], *, logs_exist: bool) -> None:
        """Open the index; `behind` are the threads that a crash may have cut off.

        Raises:
            OSError: the index cannot be made.
        """
        self._written_ns = await anyio.to_thread.run_sync(written_ns, self._path)
        index = self._index = await anyio.to_thread.run_sync(HistoryIndex, self._path)
        if not index.is_new:
            self.behind = dict.fromkeys(behind)
        elif not logs_exist:
            await anyio.to_thread.run_sync(index.mark_complete)
            self._searchable.set()

    async def keep_made(self) -> None:
        """Make the index from all logs if it is missing, and as often as it is lost."""
        if not self._require_index().is_new and not self._searchable.is_set():
            await self._check()
        while True:
            await self._make()
            await self._lost.wait()
            self._lost = anyio.Event()

    async def _make(self) -> None:
        """Make the index; tried until it works."""
        index = self._require_index()
        while index.is_new:
            generation = index.generation
            try:
                logs = await anyio.to_thread.run_sync(_logs_below, self._paths.folder)
                await self._take_in(logs)
                await anyio.to_thread.run_sync(index.mark_complete, generation)
            except IndexReplaced:
                continue
            except OSError as exc:
                logger.warning("the history cannot be indexed, and is tried again: %s", exc)
                await anyio.sleep(RETRY_S)
        self._searchable.set()

    async def _check(self) -> None:
        """Check the index, and note which logs it may have missed; a small one before searches."""
        index = self._require_index()
        for thread_id in await anyio.to_thread.run_sync(self._missed):
            self.behind.setdefault(thread_id)
        try:
            if not await anyio.to_thread.run_sync(index.is_small):
                self._searchable.set()
            await anyio.to_thread.run_sync(index.check)
        except IndexReplaced:
            self._note_lost()
        except OSError as exc:
            logger.warning("the history cannot be checked: %s", exc)

    def _missed(self) -> list[str]:
        """Find the threads whose logs were written since the index; what is no log is left out."""
        changed = changed_logs(self._paths.folder, self._written_ns)
        return [thread_id for thread_id in changed if self._paths.exists(thread_id)]

    def _note_lost(self) -> None:
        """Have the index made again if it was begun anew; searches wait for that."""
        if self._require_index().is_new and self._searchable.is_set():
            self._searchable = anyio.Event()
            self._lost.set()

    async def follow(self) -> bool:
        """Take in all threads that changed; whether all could be written."""
        try:
            await self.catch_up()
        except OSError as exc:
            self._note_lost()
            if not self._fails and not isinstance(exc, IndexReplaced):
                logger.warning("the history is behind until it can be written: %s", exc)
            self._fails = True
        else:
            self._fails = False
        return not self._fails

    def note_change(self, thread_id: str) -> None:
        """Note that a log has grown."""
        self.behind[thread_id] = None

    async def catch_up(self) -> None:
        """Take in all threads that changed; at once after a start, as soon as the index is made.

        Raises:
            OSError: the index cannot be written; the threads are taken in the next time.
        """
        if not self._searchable.is_set():
            return
        async with self._following:
            changed, self.behind = list(self.behind), {}
            try:
                await self._take_in([(thread, self._paths.path_of(thread)) for thread in changed])
            except OSError:
                self.behind = {**dict.fromkeys(changed), **self.behind}
                raise

    def _take_in_copies(self) -> None:
        """Take in the threads of Codex that lists show, as far as they changed."""
        index = self._require_index()
        known = index.copied()
        for thread_id, version in self._copies.listed():
            if known.get(thread_id) == version or self._paths.exists(thread_id):
                continue
            try:
                path = self._copies.path_of(thread_id)
            except (NoCodexThread, OSError) as exc:
                logger.warning("the thread %s of Codex cannot be searched: %s", thread_id, exc)
                continue
            index.catch_up([(thread_id, path)])
            index.note_copied(thread_id, version)

    async def _take_in(self, logs: list[tuple[str, Path]]) -> None:
        for first in range(0, len(logs), FOLLOW_STEP):
            group = logs[first : first + FOLLOW_STEP]
            await anyio.to_thread.run_sync(self._require_index().catch_up, group)

    async def ask(
        self,
        thread_id: str,
        question: Callable[[HistoryReader, *Arguments], Answer],
        *arguments: *Arguments,
    ) -> Answer:
        """Call `question(reader, *arguments)` about one thread's history in a worker thread.

        The thread need not be loaded; a loaded one is seen as its log is by now. One of Codex's is
        seen as an import would make it.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadTooNew, ThreadDamaged, OSError
            And what `question` raises.
        """
        try:
            return await self._repeated(partial(self._ask, thread_id, question, *arguments))
        except (FileNotFoundError, NoCodexThread):
            raise ThreadNotFound(thread_id) from None

    async def _repeated(self, question: Callable[[], Answer]) -> Answer:
        """Have a question answered, again where the index was begun anew under it."""
        index = self._require_index()
        for _ in range(TRIES - 1):
            generation = index.generation
            with suppress(IndexReplaced):
                answer = await anyio.to_thread.run_sync(question)
                index.require_generation(generation)
                return answer
            self._note_lost()
        return await anyio.to_thread.run_sync(question)

    def _ask(
        self,
        thread_id: str,
        question: Callable[[HistoryReader, *Arguments], Answer],
        *arguments: *Arguments,
    ) -> Answer:
        path = self._paths.path_of(thread_id)
        if path.exists():
            with log_failures(thread_id):
                read_created(FileLog(path))
        else:
            path = self._copies.path_of(thread_id)
        with FileHistoryReader(self._require_index(), thread_id, path) as reader:
            return question(reader, *arguments)

    async def usage(self, thread_id: str) -> Sequence[UsageRecorded]:
        """Read what a thread's log says of its usage; that of one of Codex says nothing.

        Raises:
            InvalidThreadId, ThreadNotFound, OSError
        """
        return await anyio.to_thread.run_sync(self._usage, thread_id)

    def _usage(self, thread_id: str) -> Sequence[UsageRecorded]:
        try:
            return usage_in(FileLog(self._paths.path_of(thread_id)))
        except FileNotFoundError:
            pass
        try:
            self._copies.path_of(thread_id)
        except NoCodexThread:
            raise ThreadNotFound(thread_id) from None
        return ()

    async def search(self, query: SearchQuery) -> tuple[SearchPage, Mapping[str, ThreadRow]]:
        """Return one page of threads by what was said in them, up to the call; and their rows.

        Waits for an index that is being made.

        Raises:
            InvalidCursor: see ThreadSearch.page.
            OSError: an index cannot be read or written.
        """
        for _ in range(TRIES - 1):
            with suppress(IndexReplaced):
                return await self._search_once(query)
        return await self._search_once(query)

    async def _search_once(self, query: SearchQuery) -> tuple[SearchPage, Mapping[str, ThreadRow]]:
        index = self._require_index()
        self._note_lost()
        await self._lists.refresh()
        await self._searchable.wait()
        generation = index.generation
        async with self._following:
            await anyio.to_thread.run_sync(self._take_in_copies)
        await self.catch_up()
        page = await anyio.to_thread.run_sync(self._find, query)
        rows = await self._lists.rows_of([found.thread_id for found in page.found])
        index.require_generation(generation)
        return page, rows

    def _find(self, query: SearchQuery) -> SearchPage:
        with self._finding:
            if self._search is not None and not self._search.is_current():
                self._close_search()
            if self._search is None:
                self._search = ThreadSearch(self._path, self._lists.path)
            try:
                return self._search.page(query)
            except IndexDamaged:
                # It reads two files: each says for itself whether it is the one.
                self._close_search()
                self._lists.check()
                self._require_index().check()
                raise

    def _close_search(self) -> None:
        search, self._search = self._search, None
        if search is not None:
            search.close()

    async def forget(self, thread_id: str) -> None:
        """Remove all that is known of a thread."""
        self.behind.pop(thread_id, None)
        await anyio.to_thread.run_sync(partial(self._require_index().forget, thread_id))

    async def aclose(self) -> None:
        """Take in what is behind and close the files; closing what was never open is harmless."""
        if self._index is not None:
            await self.follow()
            await anyio.to_thread.run_sync(self._index.close)
        await anyio.to_thread.run_sync(self._close_search)

    def _require_index(self) -> HistoryIndex:
        assert self._index is not None, "open() comes first"
        return self._index


def _logs_below(folder: Path) -> list[tuple[str, Path]]:
    return [(path.stem, path) for path in folder.rglob("*.jsonl")]
