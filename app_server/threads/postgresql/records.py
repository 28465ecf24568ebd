"""Logs in the table of records: read like files, and appended to in groups.

A row is one append, and its `position` the bytes of the log before it, so places mean the same as
in a file. What all threads of a server have waiting goes out as one statement. The epoch in it
stops a writer whose thread another server has taken over, and the primary key one that was too
late to see that.
Source: docs/scale.md, "Appending".
"""

import asyncio
import io
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, BinaryIO, NamedTuple, TypeAlias, cast
from uuid import UUID

import anyio
import anyio.to_thread
import psycopg

from app_server.observability.telemetry.metrics import Histogram
from app_server.threads.failures import TAKEN_OVER, OwnershipLost, StoreUnavailable
from app_server.threads.log.live import LogEnd
from app_server.threads.log.reading import load_state
from app_server.threads.log.state import ThreadState
from app_server.threads.postgresql.database import (
    STATEMENT_S,
    AsyncConnection,
    Connections,
    Database,
    failure_of,
)
from app_server.threads.postgresql.lists import CHANGED, WrittenRow, as_json
from app_server.threads.postgresql.nodes import PostgresNodes, lease_lost
from app_server.threads.postgresql.signals.ledger import MOVED, moves_of
from app_server.threads.postgresql.signals.version import BUMP, ON_BUMPED
from app_server.threads.rows import ThreadRow, row_after, work_after
from protocol.log.rollout import Record, render_record

MAX_ROWS = 256
"""Appends of one statement."""
MAX_BYTES = 4 << 20
"""Bytes of the appends of one statement; a larger one goes alone."""
UNSYNCED_BYTES = 256 << 10
"""Of a thread's appends that are not synced; the next one is, then."""
RESEND_S = 5.0
"""Seconds for which a synced append is sent again after its connection was lost; what is not synced
is sent until the lease ends."""
ANSWER_S = 10.0
"""Seconds without an answer to a statement, after which its connection counts as lost."""
LARGE_ANSWER_S = ANSWER_S + STATEMENT_S
"""Likewise, with appends of more than MAX_BYTES: a slow disk takes long for them."""
MIN_ANSWER_S = 1.0
"""At the end of a lease."""
RESEND_PAUSE_S = 0.05
FIRST_BYTES = 16 << 10
READ_BYTES = 2 << 20
"""Of records that are read at once, at first and later, but for the last row."""
BUFFER_BYTES = 256 << 10

# Two bounds of one index, without a function that row-level security takes for a leak.
_READ = """
SELECT position, body FROM records
WHERE thread_id = %(thread)b AND position < %(end)b AND position >= (
    SELECT max(position) FROM records WHERE thread_id = %(thread)b AND position <= %(at)b
)
ORDER BY position
"""
_END = """
SELECT position + octet_length(body) FROM records
WHERE thread_id = %b ORDER BY position DESC LIMIT 1
"""
_MENTIONS = """
SELECT EXISTS (SELECT 1 FROM records WHERE thread_id = %b AND position(%b IN body) > 0)
"""


class DatabaseLog(NamedTuple):
    """The log of a thread in the table of records."""

    database: Connections
    thread_id: UUID

    def __str__(self) -> str:
        """Name it, for people."""
        return f"the log of thread {self.thread_id}"

    def open(self) -> BinaryIO:
        """Open it for reading at any offset, from its beginning on; the caller closes it."""
        return cast(BinaryIO, io.BufferedReader(_Reader(self, self.size()), BUFFER_BYTES))

    def size(self) -> int:
        """Count its bytes.

        Raises:
            FileNotFoundError: there is no such log.
        """
        with self.database.connection() as connection:
            row = connection.execute(_END, (self.thread_id,)).fetchone()
        if row is None:
            raise FileNotFoundError(str(self))
        return int(row[0])

    def mentions(self, mark: bytes) -> bool:
        """Whether a line has these bytes; faster than to read the lines."""
        with self.database.connection() as connection:
            row = connection.execute(_MENTIONS, (self.thread_id, mark)).fetchone()
        return row is not None and bool(row[0])


class _Reader(io.RawIOBase):
    """The bytes of a log as they were when it was opened; rows are fetched as they are read."""

    def __init__(self, log: DatabaseLog, size: int) -> None:
        self._log = log
        self._size = size
        self._at = 0
        self._start = 0
        self._rows = b""
        """The rows that were fetched last, joined; they begin at `_start`."""
        self._next_bytes = FIRST_BYTES

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        if self._at >= self._size or not len(view):
            return 0
        if not self._start <= self._at < self._start + len(self._rows):
            self._fetch()
        offset = self._at - self._start
        piece = memoryview(self._rows)[offset : offset + min(len(view), self._size - self._at)]
        view[: len(piece)] = piece
        self._at += len(piece)
        return len(piece)

    def _fetch(self) -> None:
        """Fetch the row that has the next byte, and those that begin soon after it."""
        end = self._at + self._next_bytes
        values = {"thread": self._log.thread_id, "at": self._at, "end": end}
        # Most readers want the first line alone, or all.
        self._next_bytes = READ_BYTES
        with self._log.database.connection() as connection:
            rows = connection.execute(_READ, values, binary=True).fetchall()
        start = rows[0][0] if rows else self._size
        # Joined here: PostgreSQL takes three times as long for it.
        joined = b"".join([row[1] for row in rows])
        if not start <= self._at < start + len(joined):
            # Somebody has deleted the thread since.
            raise FileNotFoundError(str(self._log))
        self._start, self._rows = start, joined


_Place: TypeAlias = tuple[UUID, int]
"""A thread, and a position in its log."""


@dataclass(slots=True, eq=False)
class _Append:
    """One append that waits to be written."""

    thread_id: UUID
    position: int
    epoch: int
    body: bytes
    row: WrittenRow | None
    """The row that lists show afterwards, where it must not be behind."""
    signals: Sequence[dict[str, str]]
    """Marks of the signals that are in the history with it."""
    behind: Sequence["_Append"] = ()
    """Appends of the thread that PostgreSQL forgets if it crashes, oldest first."""
    seen_sessions: tuple[int, int] = (0, 0)
    """Sessions of both appenders over which those were answered."""
    is_over: bool = False
    failure: StoreUnavailable | None = None
    turn: "asyncio.Future[None]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    """Done when it is over, or when its caller has to write the next group."""


_APPEND = """
WITH given AS (
    SELECT * FROM unnest(%b::uuid[], %b::bigint[], %b::integer[], %b::bytea[])
        AS given (thread_id, position, epoch, body)
), added AS (
    INSERT INTO records (tenant, thread_id, position, epoch, body)
    SELECT (SELECT current_tenant()), given.* FROM given
    WHERE EXISTS (
        SELECT 1 FROM threads
        WHERE threads.tenant = (SELECT current_tenant()) AND threads.id = given.thread_id
            AND threads.epoch = given.epoch
    )
    ON CONFLICT DO NOTHING RETURNING thread_id
)"""
_COUNTED = "SELECT count(*) FROM added"
_PLAIN = f"{_APPEND} {_COUNTED}"
_WITH_MORE = f"""{_APPEND}, shown AS (
    {CHANGED} AND threads.id IN (SELECT thread_id FROM added)
), moved AS (
    {MOVED} AND signals.thread_id IN (SELECT thread_id::text FROM added) RETURNING 1
), bumped AS (
    {BUMP} WHERE EXISTS (SELECT 1 FROM moved) {ON_BUMPED} RETURNING 1
)
{_COUNTED}
"""
_WRITTEN = """
SELECT thread_id, position FROM records
JOIN unnest(%b::uuid[], %b::bigint[], %b::integer[], %b::bytea[])
    AS given (thread_id, position, epoch, body) USING (thread_id, position, epoch, body)
"""


def owner_lost() -> OwnershipLost:
    """Say that another server writes a thread, or has removed it."""
    return OwnershipLost(TAKEN_OVER, "ownerLost", retriable=True)


def _place(append: _Append) -> _Place:
    return append.thread_id, append.position


def _is_large(group: Sequence[_Append]) -> bool:
    return sum(len(append.body) for append in group) > MAX_BYTES


def _arrays(group: Sequence[_Append]) -> list[Any]:
    return [
        [append.thread_id for append in group],
        [append.position for append in group],
        [append.epoch for append in group],
        [append.body for append in group],
    ]


class GroupAppender:
    """Writes appends of all threads of a server over one connection; for the event loop.

    Whoever comes first writes all that waits, and the first of those that came meanwhile is next.
    After a group it waits a turn of the event loop: all of that group append again at once, and
    would otherwise pay for two statements, of one append and of the others.
    """

    def __init__(self, database: Database, nodes: PostgresNodes, *, synced: bool) -> None:
        self._database = database
        self._nodes = nodes
        self._synced = synced
        self._connection: AsyncConnection | None = None
        self.sessions = 0
        """Connections so far: a crash of PostgreSQL ends the one that there is."""
        self.times = Histogram()
        """Of appends, from when they came to when they were answered."""
        self.largest_group = 0
        self.fenced = 0
        """Appends that were refused, as another server has the thread."""
        self._waiting: list[_Append] = []
        self._is_writing = False
        self._comes_in_groups = False
        """Whether the last group was more than one append."""
        self._is_closed = False

    async def append(self, append: _Append) -> None:
        """Write an append; the caller shields it from being cancelled.

        Raises:
            StoreUnavailable: it was not written, or nobody knows whether it was.
        """
        came_s = time.perf_counter()
        self._waiting.append(append)
        if self._comes_in_groups and not self._is_writing:
            # Whoever was in the last group comes in this turn of the loop, if it comes again.
            self._is_writing = True
            asyncio.get_running_loop().call_soon(self._wake_next)
        if self._is_writing:
            try:
                await append.turn
            except asyncio.CancelledError:
                if not append.turn.cancelled() and not append.is_over:
                    # It was to write the next group.
                    self._waiting.remove(append)
                    self._wake_next()
                raise
        if not append.is_over:
            self._is_writing = True
            await self._write_group()
        self.times.add(time.perf_counter() - came_s)
        if append.failure is not None:
            raise append.failure

    async def _write_group(self) -> None:
        group = self._next_group()
        try:
            await self._write(group)
        except BaseException:
            # The others wait for the same statement: none of them may take it for written.
            for append in group:
                append.failure = append.failure or StoreUnavailable(
                    "the append was cut off; nobody knows whether it was written",
                    "databaseUnavailable",
                    retriable=True,
                )
            raise
        finally:
            for append in group:
                append.is_over = True
                if not append.turn.done():
                    append.turn.set_result(None)
            self._wake_next()

    def _wake_next(self) -> None:
        """Have the first that waits write the next group, if any waits."""
        self._waiting = [append for append in self._waiting if not append.turn.cancelled()]
        if self._waiting:
            self._waiting[0].turn.set_result(None)
        else:
            self._is_writing = False

    def _next_group(self) -> Sequence[_Append]:
        group: list[_Append] = []
        size = 0
        for append in self._waiting[:MAX_ROWS]:
            size += len(append.body)
            if group and size > MAX_BYTES:
                break
            group.append(append)
        del self._waiting[: len(group)]
        self.largest_group = max(self.largest_group, len(group))
        self._comes_in_groups = len(group) > 1
        return group

    async def _write(self, group: Sequence[_Append]) -> None:
        # A turn waits for what is not synced, and has nobody to answer.
        wait_s = RESEND_S if self._synced else float("inf")
        await self._write_until(group, time.monotonic() + wait_s)

    async def _write_until(self, group: Sequence[_Append], until: float) -> None:
        """Send a group, and again as long as its connection is lost and the lease lasts."""
        was_lost = False
        while True:
            try:
                self._nodes.require_held()
                if await self._send(group):
                    return
                # It may have been written before an answer that was lost: nobody else writes
                # these bytes at this place with this epoch.
                written = await self._find(group)
                break
            except StoreUnavailable as failure:
                # Without a connection nothing was sent, whatever the reason.
                is_sent_again = failure.reason == "databaseUnavailable" or self._connection is None
                if not is_sent_again and len(group) > 1:
                    # Each fails for itself: what is refused may be in one of them.
                    for append in group:
                        await self._write_until([append], until)
                    return
                is_over = not self._nodes.is_held or time.monotonic() > until or self._is_closed
                if not is_sent_again or is_over:
                    for append in group:
                        append.failure = failure if self._nodes.is_held else lease_lost()
                    return
            if was_lost:
                await anyio.sleep(RESEND_PAUSE_S)
            was_lost = True
        for append in group:
            if _place(append) not in written:
                append.failure = owner_lost()
                self.fenced += 1

    async def _send(self, group: Sequence[_Append]) -> bool:
        """Send one statement; whether it has written all."""
        async with self._session(is_large=_is_large(group)) as connection:
            sent: list[_Append] = []
            for append in group:
                if self.sessions != append.seen_sessions[not self._synced]:
                    # PostgreSQL may have crashed since, and without them there would be a gap.
                    sent += append.behind
                sent.append(append)
            rows = {append.thread_id: append.row for append in sent if append.row is not None}
            signals = [mark for append in sent for mark in append.signals]
            values = _arrays(sent)
            statement = _PLAIN
            if rows or signals:
                statement = _WITH_MORE
                values += [as_json(rows.values()), moves_of(signals)]
            cursor = await connection.execute(statement.encode(), values, binary=True)
            return await cursor.fetchone() == (len(sent),)

    async def _find(self, group: Sequence[_Append]) -> set[_Place]:
        """Return the places of what is there."""
        async with self._session(is_large=_is_large(group)) as connection:
            cursor = await connection.execute(_WRITTEN.encode(), _arrays(group), binary=True)
            return {(row[0], row[1]) for row in await cursor.fetchall()}

    @asynccontextmanager
    async def _session(self, *, is_large: bool = False) -> AsyncIterator[AsyncConnection]:
        """Lend the connection for one statement.

        Raises:
            StoreUnavailable
        """
        try:
            # Also one that does not answer: its lease is renewed meanwhile, or ends.
            left_s = self._nodes.held_until - time.monotonic()
            answer_s = min(ANSWER_S, max(left_s, MIN_ANSWER_S))
            with anyio.fail_after(LARGE_ANSWER_S if is_large else answer_s):
                yield await self._connected()
        except psycopg.Error as exc:
            raise self._failed(exc) from exc
        except TimeoutError as exc:
            await self._drop_connection()
            text = "the database does not answer"
            raise StoreUnavailable(text, "databaseUnavailable", retriable=True) from exc

    def _failed(self, error: psycopg.Error) -> StoreUnavailable:
        if self._connection is not None and self._connection.closed:
            # Whatever it said last, the next try needs another one.
            self._connection = None
            return StoreUnavailable(str(failure_of(error)), "databaseUnavailable", retriable=True)
        return failure_of(error)

    async def _connected(self) -> AsyncConnection:
        self._require_open()
        if self._connection is None or self._connection.closed:
            connection = await self._database.connect_async(synced=self._synced)
            if self._is_closed:
                await connection.close()
            self._require_open()
            self._connection = connection
            self.sessions += 1
        return self._connection

    def _require_open(self) -> None:
        if self._is_closed:
            # What is still under way would leave a connection open.
            text = "the store is closed"
            raise StoreUnavailable(text, "databaseUnavailable", retriable=True)

    async def aclose(self) -> None:
        """Close the connection; nothing is written any more."""
        self._is_closed = True
        await self._drop_connection()

    async def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


class Appenders(NamedTuple):
    """The connections that appends go over."""

    synced: GroupAppender
    """Answers when PostgreSQL has written to its disk."""
    unsynced: GroupAppender
    """Answers before; what it wrote survives this server, and is kept here for the case that
    PostgreSQL crashes before the next synced append."""

    @property
    def sessions(self) -> tuple[int, int]:
        """Count the connections of both so far."""
        return self.synced.sessions, self.unsynced.sessions


class DatabaseWriter:
    """The only writer of a thread's log, until another server takes it over."""

    def __init__(
        self, log: DatabaseLog, epoch: int, end: int, appenders: Appenders, nodes: PostgresNodes
    ) -> None:
        """Write for the node that this server is now."""
        self._log = log
        self._epoch = epoch
        self._end = end
        self._appenders = appenders
        self._nodes = nodes
        self._node_id = nodes.id
        self._was_refused = False
        """Whether an append was, as another server has the thread."""
        self._behind: list[_Append] = []
        """Appends since the last synced one; UNSYNCED_BYTES at most."""
        self._seen_sessions = (0, 0)
        """Before the first of them was sent."""

    @property
    def end(self) -> LogEnd:
        """Bytes of the log: whole appends."""
        return LogEnd(self._end)

    @property
    def is_lost(self) -> bool:
        """Whether it was taken before the node was taken for dead, or by another one since."""
        return self._was_refused or self._node_id != self._nodes.id

    async def append(
        self, records: Sequence[Record], before: ThreadState, *, sync: bool
    ) -> Sequence[int]:
        """Add records; see RecordWriter.append."""
        lines = list(map(render_record, records))
        append = _Append(
            self._log.thread_id,
            self._end,
            self._epoch,
            b"".join(lines),
            _row_after(before, records),
            [mark for record in records for mark in _marks(record)],
        )
        sessions = self._appenders.sessions
        if self._behind:
            append.behind, append.seen_sessions = list(self._behind), self._seen_sessions
            sync = sync or sum(len(one.body) for one in self._behind) > UNSYNCED_BYTES
        appender = self._appenders.synced if sync else self._appenders.unsynced
        try:
            await appender.append(append)
        except StoreUnavailable as exc:
            if exc.reason == "ownerLost":
                self._was_refused = True
                self._nodes.note_lost()
            raise
        self._end += len(append.body)
        append.behind = ()
        if sync:
            self._behind.clear()
        else:
            if not self._behind:
                self._seen_sessions = sessions
            self._behind.append(append)
        return list(map(len, lines))

    async def read_before(self, turn_id: str) -> ThreadState:
        """Read the log again; see RecordWriter.read_before."""
        read = partial(load_state, self._log, before_turn_id=turn_id)
        return await anyio.to_thread.run_sync(read)

    async def require_owned(self) -> None:
        """Wait for a lease that is renewed just now; see RecordWriter.require_owned."""
        await self._nodes.require_lease()
        if self._node_id != self._nodes.id:
            raise owner_lost()

    async def close(self) -> None:
        """Do nothing: the store gives the thread back together with its last row."""


def _row_after(before: ThreadState, records: Sequence[Record]) -> WrittenRow | None:
    """Return what a row must have with the append itself; None: nothing."""
    row, work = row_after(before, records), work_after(before, records)
    if not before.has_content and not work:
        # Lists do not show it yet: if this server dies, the next one has to write the row.
        work = True
    if row is None and work is None:
        return None
    return WrittenRow(row or ThreadRow.of(before), work)


def _marks(record: Record) -> Sequence[dict[str, str]]:
    """Return what the ledger needs of the signals in a record."""
    marks = getattr(record, "signals", None) or []
    if record.type == "inputQueued" and (mark := getattr(record, "signal", None)) is not None:
        marks = [mark]
    elif record.type != "historyAppended":
        return ()
    return [{"source": mark.source, "id": mark.id, "item_id": mark.item_id} for mark in marks]
