"""The history of all threads in the database: turns, items and texts, made from the records.

What is known of a log is brought up to date before a page of it is read, at the latest before the
next search, and 0.5 s after a change.

Texts are kept case-folded beside what was said, with an index of trigrams: both stores find the
same. A term of few hits is looked up and its threads are sorted; for others threads are walked in
their order until the page is full.
Source: docs/scale.md, "Tables"; docs/wire.md, "History and search"; docs/architecture.md, "Threads
on disk".
"""

import logging
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, TypeVarTuple
from uuid import UUID

import anyio
import anyio.to_thread
from pydantic_core import from_json, to_json

from app_server.threads.failures import ThreadNotFound, uuid_of
from app_server.threads.history.outlining import (
    BETWEEN,
    MAX_PAGES,
    Progress,
    TextPages,
    item_in,
    read_on,
)
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
from app_server.threads.log.outline import ItemKind, ItemPlace, Outliner, TurnOutline
from app_server.threads.log.reading import Dropped, dropped_in, read_created, usage_in
from app_server.threads.postgresql.database import Connection, Database, OneConnection, storable
from app_server.threads.postgresql.lists import PostgresLists, containing, cursor_id
from app_server.threads.postgresql.records import DatabaseLog
from app_server.threads.rows import ThreadRow
from protocol.log.rollout import UsageRecorded
from protocol.turns.items import ThreadItem
from protocol.turns.turn import TurnError

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


logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")
Arguments = TypeVarTuple("Arguments")

_BATCH = 32
_COLUMNS = "number, id, started_at_ms, status, error, completed_at_ms, duration_ms, packed"
_OF_THREAD = "tenant = (SELECT current_tenant()) AND thread_id = %s"
AHEAD_BYTES = 16 << 10
"""That are fetched with an item; twice as many with each that comes behind the last ones."""
MAX_AHEAD_BYTES = 1 << 20
# The row of the item from there on, and those that fit whole: no other large one comes along.
_AHEAD = """
SELECT CASE WHEN position > %(at)b THEN body
    ELSE substring(body FROM (%(at)b - position + 1)::integer FOR %(size)b::integer) END
FROM records
WHERE thread_id = %(thread)b AND position < %(at)b::bigint + %(size)b AND position >= (
    SELECT max(position) FROM records WHERE thread_id = %(thread)b AND position <= %(at)b
) AND (position <= %(at)b OR position + octet_length(body) <= %(at)b::bigint + %(size)b)
ORDER BY position
"""
_PUT_TURN = (
    f"INSERT INTO turns (thread_id, {_COLUMNS}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) "
    "ON CONFLICT (tenant, thread_id, number) DO UPDATE SET "
    + ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS.split(", ")[1:])
)
_PUT_PAGE = """
INSERT INTO texts (thread_id, page, text, folded) VALUES (%s, %s, %s, %s)
ON CONFLICT (tenant, thread_id, page) DO UPDATE SET text = excluded.text, folded = excluded.folded
"""
_PUT_OUTLINE = """
INSERT INTO outlines (thread_id, seen, at_ms, started, waiting) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (tenant, thread_id) DO UPDATE SET seen = excluded.seen, at_ms = excluded.at_ms,
    started = excluded.started, waiting = excluded.waiting
"""


class DatabaseHistoryReader:
    """One thread's history, for the length of one request. Blocks."""

    def __init__(self, database: Database, thread_id: UUID) -> None:
        """Bring what is known of the log up to date.

        Raises:
            FileNotFoundError: there is no such log.
            StoreUnavailable
        """
        self._database = database
        self._id = thread_id
        self.thread_id = str(thread_id)
        self.written_at_ms = catch_up(database, thread_id)
        self._start = 0
        self._fetched = b""
        """Bytes of the log from `_start` on."""
        self._ahead = AHEAD_BYTES

    def item(self, place: ItemPlace) -> ThreadItem | None:
        """Read an item; None if its line is damaged."""
        if not self._start <= place.offset <= self._start + len(self._fetched) - place.length:
            self._fetch(place)
        offset = place.offset - self._start
        return item_in(self._fetched[offset : offset + place.length])

    def _fetch(self, place: ItemPlace) -> None:
        """Fetch an item, and more where items are read in the order of the log."""
        goes_on = bool(self._fetched) and place.offset >= self._start
        self._ahead = min(2 * self._ahead, MAX_AHEAD_BYTES) if goes_on else AHEAD_BYTES
        size = max(place.length, self._ahead)
        values = {"thread": self._id, "at": place.offset, "size": size}
        with self._database.connection() as connection:
            rows = connection.execute(_AHEAD, values, binary=True).fetchall()
        self._start, self._fetched = place.offset, b"".join([row[0] for row in rows])

    def turn(self, turn_id: str) -> TurnOutline | None:
        """Find a turn."""
        with self._database.connection() as connection:
            return _find_turn(connection, self._id, turn_id)

    def walk(self, number: int | None, *, ascending: bool) -> Iterator[TurnOutline]:
        """Walk turns from a number on, itself included; None begins at the end or the beginning."""
        bound = number
        while True:
            batch = self._turns(bound, ascending=ascending)
            yield from batch
            if len(batch) < _BATCH:
                return
            bound = batch[-1].number + (1 if ascending else -1)

    def _turns(self, bound: int | None, *, ascending: bool) -> Sequence[TurnOutline]:
        values: list[Any] = [self._id]
        where = _OF_THREAD
        if bound is not None:
            where += f" AND number {'>=' if ascending else '<='} %s"
            values.append(bound)
        statement = (
            f"SELECT {_COLUMNS} FROM turns WHERE {where} "
            f"ORDER BY number {'ASC' if ascending else 'DESC'} LIMIT {_BATCH}"
        )
        with self._database.connection() as connection:
            return [_turn_of(row) for row in connection.execute(statement.encode(), values)]


def _find_turn(connection: Connection, thread_id: UUID, turn_id: str) -> TurnOutline | None:
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM turns WHERE {_OF_THREAD} AND id = %s ORDER BY number DESC LIMIT 1",
        (thread_id, storable(turn_id)),
    ).fetchone()
    return None if row is None else _turn_of(row)


def _turn_of(row: Sequence[Any]) -> TurnOutline:
    number, turn_id, started_at_ms, status, error, completed_at_ms, duration_ms, packed = row
    return TurnOutline(
        number,
        turn_id,
        started_at_ms,
        status,
        None if error is None else TurnError.model_validate_json(error),
        completed_at_ms,
        duration_ms,
        array("Q", packed),
    )


def catch_up(database: Database, thread_id: UUID) -> int:
    """Take into account what was written to a log since the last time; when it was last written.

    Whoever comes second waits for the first, and finds nothing more to do.

    Raises:
        FileNotFoundError: there is no such log.
        StoreUnavailable
    """
    while True:
        # A step at a time, so that the second one does not wait for longer than a statement may.
        with database.transaction() as connection:
            progress, is_all = _catch_up(connection, thread_id)
        if is_all:
            return progress.at_ms


def _catch_up(connection: Connection, thread_id: UUID) -> tuple[Progress, bool]:
    """Read a step of a log, or all of one that has reverts; and whether it is known whole then."""
    log = DatabaseLog(OneConnection(connection), thread_id)
    size = log.size()
    # A row to lock, also of a thread that nothing is known of.
    connection.execute(
        "INSERT INTO outlines (thread_id, seen, at_ms, started, waiting) "
        "VALUES (%s, 0, 0, 0, '[]') ON CONFLICT DO NOTHING",
        (log.thread_id,),
    )
    progress = _progress(connection, log.thread_id)
    start = progress.seen
    if start >= size:
        return progress, True
    if not _scan(connection, log, progress, None, size):
        # There is a revert: what it drops is known only now, and only here.
        progress = Progress(0, 0, Outliner())
        for table in ("turns", "texts"):
            connection.execute(f"DELETE FROM {table} WHERE {_OF_THREAD}", (log.thread_id,))
        dropped, start = dropped_in(log), -1
        while start < progress.seen < size:
            start = progress.seen
            _scan(connection, log, progress, dropped, size)
    waiting = to_json([list(place) for place in progress.outliner.waiting]).decode()
    values = progress.seen, progress.at_ms, progress.outliner.started, waiting
    connection.execute(_PUT_OUTLINE, (log.thread_id, *values))
    # A torn line may be left.
    return progress, progress.seen >= size or progress.seen == start


def _progress(connection: Connection, thread_id: UUID) -> Progress:
    row = connection.execute(
        f"SELECT seen, at_ms, started, waiting FROM outlines WHERE {_OF_THREAD} FOR UPDATE",
        (thread_id,),
    ).fetchone()
    assert row is not None
    seen, at_ms, started, waiting = row
    last = connection.execute(
        f"SELECT {_COLUMNS} FROM turns WHERE {_OF_THREAD} ORDER BY number DESC LIMIT 1",
        (thread_id,),
    ).fetchone()
    places = [ItemPlace(place[0], place[1], ItemKind(place[2])) for place in from_json(waiting)]
    outliner = Outliner(None if last is None else _turn_of(last), started, places)
    return Progress(seen, at_ms, outliner)


def _scan(
    connection: Connection,
    log: DatabaseLog,
    progress: Progress,
    dropped: Dropped | None,
    size: int,
) -> bool:
    """Read a step from where `progress` stands; without `dropped` up to a revert (then False)."""
    pages = TextPages(partial(_last_page, connection, log.thread_id))
    find = partial(_find_turn, connection, log.thread_id)
    if not read_on(log, progress, dropped, pages, find, size):
        return False
    oldest = max(pages.changed, default=-1) - MAX_PAGES
    with connection.cursor() as cursor:
        turns = (_values(log.thread_id, turn) for turn in progress.outliner.changed)
        cursor.executemany(_PUT_TURN.encode(), turns)
        texts = (
            (log.thread_id, page, storable(text), storable(text.casefold()))
            for page, text in pages.changed.items()
            if page > oldest
        )
        cursor.executemany(_PUT_PAGE, texts)
    if oldest >= 0:
        connection.execute(
            f"DELETE FROM texts WHERE {_OF_THREAD} AND page <= %s", (log.thread_id, oldest)
        )
    progress.outliner.changed.clear()
    return True


def _last_page(connection: Connection, thread_id: UUID) -> tuple[int, str] | None:
    row = connection.execute(
        f"SELECT page, text FROM texts WHERE {_OF_THREAD} ORDER BY page DESC LIMIT 1", (thread_id,)
    ).fetchone()
    return None if row is None else (row[0], row[1])


def _values(thread_id: UUID, turn: TurnOutline) -> Sequence[Any]:
    return (
        thread_id,
        turn.number,
        storable(turn.id),
        turn.started_at_ms,
        turn.status,
        None if turn.error is None else turn.error.model_dump_json(),
        turn.completed_at_ms,
        turn.duration_ms,
        turn.packed.tobytes(),
    )


class PostgresHistory:
    """History of all threads, loaded or not."""

    def __init__(self, database: Database, lists: PostgresLists) -> None:
        self._database = database
        self._lists = lists
        self._behind: dict[str, None] = {}
        """Ids of the threads whose logs have grown since their texts were brought up to date."""
        self._following = anyio.Lock()
        self._fails = False

    def note_change(self, thread_id: str) -> None:
        """Note that a log has grown."""
        self._behind[thread_id] = None

    def forget(self, thread_id: str) -> None:
        """Note that a thread was deleted."""
        self._behind.pop(thread_id, None)

    async def follow(self) -> None:
        """Take in the threads that changed here; what cannot be written now is tried again."""
        async with self._following:
            changed, self._behind = list(self._behind), {}
            if not changed:
                return
            try:
                await anyio.to_thread.run_sync(self._take_in, changed)
            except OSError as exc:
                if not self._fails:
                    logger.warning("the history is behind until it can be written: %s", exc)
                self._fails = True
                self._behind = {**dict.fromkeys(changed), **self._behind}
            else:
                self._fails = False

    def _take_in(self, thread_ids: Sequence[str]) -> None:
        for thread_id in thread_ids:
            try:
                catch_up(self._database, uuid_of(thread_id))
            except FileNotFoundError:
                continue

    async def ask(
        self,
        thread_id: str,
        question: Callable[[HistoryReader, *Arguments], Answer],
        *arguments: *Arguments,
    ) -> Answer:
        """Call `question(reader, *arguments)` in a worker thread; see ThreadHistory.ask."""
        ask = partial(_ask, self._database, uuid_of(thread_id), question, *arguments)
        try:
            return await anyio.to_thread.run_sync(ask)
        except FileNotFoundError:
            raise ThreadNotFound(thread_id) from None

    async def usage(self, thread_id: str) -> Sequence[UsageRecorded]:
        """Read what a thread's log says of its usage; see ThreadHistory.usage."""
        log = DatabaseLog(self._database, uuid_of(thread_id))
        try:
            return await anyio.to_thread.run_sync(usage_in, log)
        except FileNotFoundError:
            raise ThreadNotFound(thread_id) from None

    async def search(self, query: SearchQuery) -> tuple[SearchPage, Mapping[str, ThreadRow]]:
        """Return one page of threads by what was said in them; see ThreadHistory.search."""
        await self._lists.flush()
        await self.follow()
        page = await anyio.to_thread.run_sync(search_page, self._database, query)
        rows = await self._lists.rows_of([found.thread_id for found in page.found])
        return page, rows


def _ask(
    database: Database,
    thread_id: UUID,
    question: Callable[[HistoryReader, *Arguments], Answer],
    *arguments: *Arguments,
) -> Answer:
    with log_failures(str(thread_id)):
        read_created(DatabaseLog(database, thread_id))
    return question(DatabaseHistoryReader(database, thread_id), *arguments)
