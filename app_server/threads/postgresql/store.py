"""All threads of a database, and its projects and sections.

A thread names the server that writes it; that of one which is dead is anybody's. Each time a
thread is taken its epoch grows, and appends of an older one are refused.
Source: docs/scale.md, "Who writes a thread", "Tables"; docs/threads.md, "Projects and sections".
"""

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
from pydantic_core import to_json

from app_server.threads.failures import (
    Holder,
    InvalidThreadId,
    ThreadBusy,
    ThreadDamaged,
    ThreadExists,
    ThreadNotFound,
    uuid_of,
)
from app_server.threads.log.faults import LogFaults, log_failures
from app_server.threads.log.live import LiveThread
from app_server.threads.log.outline import LogLine
from app_server.threads.log.reading import (
    ForkPoint,
    add_up,
    lines_in,
    load_state,
    ranges_to_copy,
    read_created,
)
from app_server.threads.log.state import ThreadState, begin
from app_server.threads.nodes import ALONE, NodeSettings
from app_server.threads.organization import FilingState, NotInSection, Owner, rank_between
from app_server.threads.postgresql.database import Connection, Database, OneConnection, storable
from app_server.threads.postgresql.history import PostgresHistory
from app_server.threads.postgresql.lists import (
    CHANGED,
    INSERTED,
    PostgresLists,
    WrittenRow,
    as_json,
    final_row,
)
from app_server.threads.postgresql.nodes import LIVES, SUSPECT, PostgresNodes
from app_server.threads.postgresql.records import (
    Appenders,
    DatabaseLog,
    DatabaseWriter,
    GroupAppender,
    owner_lost,
)
from app_server.threads.postgresql.requirements import require_usable
from protocol.log.filing import FilingRecord, parse_filing_record
from protocol.log.rollout import Record, ThreadCreated, render_record

logger = logging.getLogger(__name__)


FILING_LOCK = 0x66696C65
"""Class of the advisory lock that orders changes, one for each tenant."""

_OF_TENANT = "tenant = (SELECT current_tenant())"


class PostgresOrganization:
    """The projects and sections that threads can be in; servers of a database share them."""

    def __init__(self, database: Database, lists: PostgresLists) -> None:
        self.state = FilingState()
        self._database = database
        self._lists = lists
        self._read_to = -1
        """Position of the newest line that `state` has."""
        self._problem: str | None = None
        """Why the lines cannot be read; logged once."""
        self._turn = anyio.Lock()

    async def refresh(self) -> FilingState:
        """Take over what other servers have added.

        Raises:
            StoreUnavailable
        """
        async with self._turn:
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._read)
        return self.state

    def _read(self) -> None:
        with self._database.connection() as connection:
            self._take_in(connection)

    def _take_in(self, connection: Connection) -> None:
        found = connection.execute(
            f"SELECT position, body FROM filing WHERE {_OF_TENANT} AND position > %s "
            "ORDER BY position",
            (self._read_to,),
        ).fetchall()
        records = [parse_filing_record(body) for _, body in found]
        self.state = self.state.after(record for record in records if record is not None)
        if found:
            self._read_to = found[-1][0]

    async def latest(self) -> FilingState:
        """Do as `refresh`; while the store cannot be read, return what was read of it before."""
        try:
            state = await self.refresh()
        except OSError as exc:
            if exc.strerror != self._problem:
                self._problem = exc.strerror
                logger.warning("projects and sections: %s", exc)
            return self.state
        self._problem = None
        return state

    async def change(
        self, decide: Callable[[FilingState], Sequence[FilingRecord]]
    ) -> Sequence[FilingRecord]:
        """Add what `decide` makes of the state; see Organization.change."""
        async with self._turn:
            with anyio.CancelScope(shield=True):
                added = await anyio.to_thread.run_sync(self._change, decide)
        return added

    def _change(
        self, decide: Callable[[FilingState], Sequence[FilingRecord]]
    ) -> Sequence[FilingRecord]:
        with self._database.transaction() as connection:
            connection.execute("SELECT pg_advisory_xact_lock(%s, current_tenant())", (FILING_LOCK,))
            self._take_in(connection)
            added = decide(self.state)
            position = self._read_to
            for record in added:
                position += 1
                connection.execute(
                    "INSERT INTO filing (position, body) VALUES (%s, %s)",
                    (position, render_record(record)),
                )
        self.state, self._read_to = self.state.after(added), position
        return added

    async def rank_in_section(self, section_id: str, moved: str, before: str | None) -> str:
        """Find a place for a thread in a section: before another one, or at the end.

        Raises:
            NotInSection: the other thread is not in this section.
        """
        await self._lists.flush()
        find = partial(self._neighbours, section_id, moved, before)
        low, high = await anyio.to_thread.run_sync(find)
        return rank_between(low, high)

    def _neighbours(
        self, section_id: str, moved: str, before: str | None
    ) -> tuple[str | None, str | None]:
        bound, high = "", None
        values: list[Any] = [storable(section_id), moved]
        with self._database.connection() as connection:
            if before is not None:
                found = _row_in(connection, before, section_id)
                if found is None:
                    raise NotInSection(before)
                (high,) = found
                bound = " AND (section_rank, id) < (%s, %s::uuid)"
                values += [high, before]
            statement = (
                f"SELECT max(section_rank) FROM threads WHERE {_OF_TENANT} AND section_id = %s "
                f"AND id <> %s::uuid{bound}"
            )
            row = connection.execute(statement.encode(), values).fetchone()
        low = None if row is None else row[0]
        # Two servers may have given the same rank: the new one then goes behind both.
        return (low, high) if high is None or low is None or low < high else (low, None)

    async def project_recency(self) -> Mapping[str, int]:
        """Return when an unarchived thread of each project was last active, in milliseconds."""
        await self._lists.flush()
        return await anyio.to_thread.run_sync(self._project_recency)

    def _project_recency(self) -> Mapping[str, int]:
        with self._database.connection() as connection:
            found = connection.execute(
                f"SELECT project_id, max(recency_at_ms) FROM threads WHERE {_OF_TENANT} "
                "AND project_id IS NOT NULL AND NOT archived AND has_content GROUP BY project_id"
            )
            return dict(found.fetchall())

    async def owners(
        self, attachment: tuple[str, str], archived: bool | None, after: str, limit: int
    ) -> Sequence[Owner]:
        """Return threads with an attachment of this type and key, by id, from `after` on."""
        await self._lists.flush()
        find = partial(self._owners, attachment, archived, after, limit)
        return await anyio.to_thread.run_sync(find)

    def _owners(
        self, attachment: tuple[str, str], archived: bool | None, after: str, limit: int
    ) -> Sequence[Owner]:
        # The column is a list of pairs as they are rendered here, and quotes in them are escaped.
        values: list[Any] = [storable(to_json(attachment).decode()), after]
        which = ""
        if archived is not None:
            which = " AND archived = %s"
            values.append(archived)
        statement = (
            f"SELECT id::text, archived FROM threads WHERE {_OF_TENANT} AND attachments <> '[]' "
            f'AND strpos(attachments, %s) > 0 AND id::text COLLATE "C" > %s{which} '
            "ORDER BY id LIMIT %s"
        )
        with self._database.connection() as connection:
            found = connection.execute(statement.encode(), [*values, limit]).fetchall()
        return [Owner(thread_id, is_archived) for thread_id, is_archived in found]


def _row_in(connection: Connection, thread_id: str, section_id: str) -> tuple[Any, ...] | None:
    try:
        known = uuid_of(thread_id)
    except InvalidThreadId:
        return None
    return connection.execute(
        "SELECT section_rank FROM threads WHERE id = %s AND section_id = %s",
        (known, storable(section_id)),
    ).fetchone()


SUSPECT_S = 13.0
"""Seconds for which a thread whose server may be dead is waited for, until it is busy: a server
that has just started takes nobody for dead for a lease, which is 10 s unless it is set."""
SUSPECT_LOOK_S = 1.0
"""Seconds between looks whether it is free, while none is known to have died."""
KEPT_S = 1.0
"""Seconds until a thread that could not be given back is given back again."""
COPY_BYTES = 1 << 20
"""Bytes of a row that a fork begins with, but for a longer line."""

_TAKE = f"""
UPDATE threads SET owner = %(me)s, epoch = epoch + 1
FROM (SELECT owner AS last FROM threads WHERE id = %(id)s FOR UPDATE) AS found
WHERE id = %(id)s AND (owner IS NULL OR owner = %(me)s OR NOT {LIVES})
RETURNING epoch, last IS NOT NULL AND last <> %(me)s
"""
_HOLDER = f"""
SELECT nodes.pid, nodes.started_at, nodes.address, owner = %(me)s
FROM threads LEFT JOIN nodes ON nodes.id = threads.owner
WHERE threads.id = %(id)s AND owner IS NOT NULL AND {LIVES}
"""
LEFT = UUID(int=0)
"""Owner of a thread that was given back with work: anybody takes it up."""
_ROW = f"{CHANGED} AND threads.owner = %b AND threads.epoch = %b"
_GIVE_BACK = """
UPDATE threads SET owner = CASE WHEN has_work AND %s THEN %s END
WHERE id = %s AND owner = %s AND epoch = %s
"""
_HELD = "SELECT FROM threads WHERE id = %s AND owner = %s AND epoch = %s FOR UPDATE"
_ADD = "INSERT INTO records (thread_id, position, epoch, body) VALUES (%s, %s, 1, %s)"


class Holding(NamedTuple):
    """A thread that a server has taken, until it gives it back or another one takes it."""

    node_id: UUID
    thread_id: UUID
    epoch: int
    is_left: bool = False
    """Whether others take its work up when it is given back: whoever had it before left it so."""


def take(database: Database, node_id: UUID, thread_id: UUID) -> Holding:
    """Make a server the one that writes a thread.

    Raises:
        ThreadNotFound, ThreadBusy, StoreUnavailable
    """
    values = {"me": node_id, "id": thread_id}
    with database.connection() as connection:
        row = connection.execute(_TAKE.encode(), values).fetchone()
        if row is None:
            found = connection.execute(_HOLDER.encode(), values).fetchone()
            if found is None:
                raise ThreadNotFound(str(thread_id))
            raise ThreadBusy(Holder(*found[:3]))
    return Holding(node_id, thread_id, *row)


def give_back(database: Database, holding: Holding, row: WrittenRow | None = None) -> None:
    """Let others write a thread, with its final row if that is given.

    Raises:
        StoreUnavailable
    """
    node_id, thread_id, epoch, is_left = holding
    with database.transaction() as connection:
        if row is not None:
            connection.execute(_ROW.encode(), (as_json([row]), node_id, epoch))
        connection.execute(_GIVE_BACK, (is_left, LEFT, thread_id, node_id, epoch))


def _copied_rows(created: ThreadCreated, lines: Iterable[LogLine]) -> Iterator[bytes]:
    """Group the first line of a fork, and those that it copies, into rows."""
    row, size = [render_record(created)], 0
    for line in lines:
        if size > COPY_BYTES:
            yield b"".join(row)
            row, size = [], 0
        row.append(line.content)
        size += len(line.content)
    yield b"".join(row)


@dataclass(frozen=True, slots=True)
class DatabaseThreads:
    """The threads of a database, taken and given back for one server. Everything here blocks."""

    database: Database
    nodes: PostgresNodes
    appenders: Appenders
    changed: Callable[[ThreadState], None]
    """Called after every append to a thread that was opened here."""
    held: dict[str, Holding] = field(default_factory=dict)
    """Threads that were opened here and not closed."""
    kept: dict[str, tuple[Holding, WrittenRow | None]] = field(default_factory=dict)
    """Threads that could not be given back yet, and their rows; each was open here."""

    def _log(self, thread_id: UUID) -> DatabaseLog:
        return DatabaseLog(self.database, thread_id)

    def _live(
        self, state: ThreadState, holding: Holding, end: int, warnings: Sequence[str] = ()
    ) -> LiveThread:
        self.held[state.id] = holding
        log = self._log(holding.thread_id)
        writer = DatabaseWriter(log, holding.epoch, end, self.appenders, self.nodes)
        return LiveThread(state, writer, self.changed, warnings)

    def _insert(
        self, connection: Connection, state: ThreadState, bodies: Iterable[bytes]
    ) -> tuple[Holding, int]:
        """Begin a thread that this server writes; returns the bytes of its log, too."""
        holding = Holding(self.nodes.id, uuid_of(state.id), 1)
        row = as_json([final_row(state)])
        if connection.execute(INSERTED.encode(), (holding.node_id, row)).fetchone() is None:
            raise ThreadExists(state.id)
        position = 0
        for body in bodies:
            connection.execute(_ADD, (holding.thread_id, position, body), binary=True)
            position += len(body)
        return holding, position

    def create(self, state: ThreadState, created: Record) -> LiveThread:
        """Begin a thread with its first record; see ThreadStore.create."""
        with self.database.transaction() as connection:
            holding, end = self._insert(connection, state, [render_record(created)])
        return self._live(state, holding, end)

    def load(self, thread_id: str) -> LiveThread:
        """Take a thread, and read its log; see ThreadStore.load."""
        known, faults = uuid_of(thread_id), LogFaults()
        log = self._log(known)
        with log_failures(thread_id):
            # A log that is not known is not taken either.
            read_created(log)
            holding = self._take(known)
        try:
            with log_failures(thread_id):
                state = load_state(log, faults)
                end = log.size()
            with self.database.connection() as connection:
                row = as_json([final_row(state)])
                values = row, holding.node_id, holding.epoch
                written = connection.execute(_ROW.encode(), values).rowcount
            if not written or holding.node_id != self.nodes.id:
                # It took so long that another server has it, or may take it.
                raise owner_lost()
        except BaseException:
            self._give_back(holding)
            raise
        warnings = faults.texts(str(log))
        for text in warnings:
            logger.warning("%s", text)
        return self._live(state, holding, end, warnings)

    def _take(self, thread_id: UUID) -> Holding:
        holding = take(self.database, self.nodes.id, thread_id)
        if holding.is_left:
            self.nodes.note_taken_over()
        since = "that another one left or died with, " if holding.is_left else ""
        logger.info("this node writes thread %s, %sin epoch %d", thread_id, since, holding.epoch)
        if (kept := self.kept.pop(str(thread_id), None)) is not None and kept[0].is_left:
            return holding._replace(is_left=True)
        return holding

    def _give_back(self, holding: Holding, row: WrittenRow | None = None) -> None:
        try:
            give_back(self.database, holding, row)
        except OSError as exc:
            logger.warning("thread %s is given back later: %s", holding.thread_id, exc)
            self.kept[str(holding.thread_id)] = holding, row

    def give_back_kept(self) -> None:
        """Give back what could not be given back before.

        Raises:
            StoreUnavailable: some are still kept.
        """
        for thread_id, (holding, row) in list(self.kept.items()):
            # One that was taken again since has another epoch.
            give_back(self.database, holding, row)
            if self.kept.get(thread_id) == (holding, row):
                del self.kept[thread_id]

    def fork(self, source_id: str, point: ForkPoint, created: ThreadCreated) -> LiveThread:
        """Begin a thread with a part of another one; see ThreadStore.fork."""
        source = self._log(uuid_of(source_id))
        with log_failures(source_id):
            read_created(source)
            ranges = ranges_to_copy(source, point)
            if created.ephemeral:
                state = add_up(begin(created), lines_in(source, ranges), source)
                return LiveThread(state, None, lambda _: None)
            with self.database.transaction() as connection:
                lines = lines_in(DatabaseLog(OneConnection(connection), source.thread_id), ranges)
                bodies = _copied_rows(created, lines)
                holding, end = self._insert(connection, begin(created), bodies)
        try:
            state = load_state(self._log(holding.thread_id))
        except BaseException:
            # Nobody was told of it, so it does not exist.
            self._remove(holding)
            raise
        return self._live(state, holding, end)

    def delete(self, thread_id: UUID) -> None:
        """Remove a thread and all that is derived of it; see ThreadStore.delete."""
        try:
            with log_failures(str(thread_id)):
                read_created(self._log(thread_id))
        except ThreadDamaged:
            # A first line that is damaged is none of a newer version.
            pass
        holding = self._take(thread_id)
        try:
            self._remove(holding)
        except BaseException:
            self._give_back(holding)
            raise

    def _remove(self, holding: Holding) -> None:
        node_id, thread_id, epoch, _ = holding
        with self.database.transaction() as connection:
            if not connection.execute(_HELD, (thread_id, node_id, epoch)).rowcount:
                raise owner_lost()
            for table in ("texts", "turns", "outlines", "records"):
                connection.execute(
                    f"DELETE FROM {table} WHERE tenant = (SELECT current_tenant()) "
                    "AND thread_id = %s",
                    (thread_id,),
                )
            connection.execute("DELETE FROM threads WHERE id = %s", (thread_id,))

    def close(self, thread: LiveThread, *, goes_on: bool) -> None:
        """Give a thread back, with its final row."""
        holding = self.held.pop(thread.id, None)
        if holding is None:
            return
        # Where the end of a turn could not be written, its next owner writes it.
        is_open = thread.state.open_turn is not None
        is_left = holding.is_left or goes_on or thread.is_abandoned or is_open
        holding = holding._replace(is_left=is_left)
        if thread.is_abandoned:
            # If it is still this server's, it is read again here, or given back then.
            self.kept[thread.id] = holding, None
        else:
            self._give_back(holding, final_row(thread.state))

    def read(self, thread_id: str) -> ThreadState:
        """Read a thread without what the model sees; see ThreadStore.read."""
        log = self._log(uuid_of(thread_id))
        with log_failures(thread_id):
            return load_state(log, with_history=False)

    def require_free(self, thread_id: UUID) -> None:
        """Look whether another server writes a thread; see ThreadStore.require_free."""
        values = {"me": self.nodes.id, "id": thread_id}
        with self.database.connection() as connection:
            row = connection.execute(_HOLDER.encode(), values).fetchone()
        if row is not None and not row[3]:
            raise ThreadBusy(Holder(row[0], row[1], row[2]))

    def exists(self, thread_id: UUID) -> bool:
        """Whether a thread is stored."""
        with self.database.connection() as connection:
            found = connection.execute("SELECT 1 FROM threads WHERE id = %s", (thread_id,))
            return found.fetchone() is not None

    def exported(self, thread_id: str, limit: int) -> bytes | None:
        """Return the lines of a log; see ThreadStore.exported."""
        log = self._log(uuid_of(thread_id))
        with log_failures(thread_id):
            if log.size() > limit:
                return None
            with log.open() as file:
                return file.read()

    def is_suspect(self, thread_id: UUID) -> bool:
        """Whether the server that writes a thread may be dead, and will soon be known to be."""
        with self.database.connection() as connection:
            return connection.execute(SUSPECT.encode(), (thread_id,)).fetchone() is not None


class PostgresStore:
    """All threads of a database, or of a role's part of it."""

    def __init__(self, database: Database, node: NodeSettings = ALONE) -> None:
        """Name the database, and what this server is to others; nothing is opened yet."""
        self._database = database
        self.nodes = PostgresNodes(database, node)
        """The servers of the database, and the lease of this one."""
        self._appenders = Appenders(
            GroupAppender(database, self.nodes, synced=True),
            GroupAppender(database, self.nodes, synced=False),
        )
        self._threads = DatabaseThreads(database, self.nodes, self._appenders, self._note_change)
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self.lists = PostgresLists(database, self.nodes)
        """Lists of all threads."""
        self.history = PostgresHistory(database, self.lists)
        """Pages of one thread, and searches over all."""
        self.organization = PostgresOrganization(database, self.lists)
        """The projects and sections that threads can be in."""

    async def open(self) -> None:
        """Connect, and announce this server.

        Raises:
            StoreUnavailable: the database cannot be used.
        """
        await anyio.to_thread.run_sync(self._database.open)
        await anyio.to_thread.run_sync(require_usable, self._database)
        await self.nodes.open()
        await self.organization.refresh()

    async def run(self) -> None:
        """Keep rows, texts and the lease of this server up to date, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.nodes.run)
            tasks.start_soon(self._give_back_kept)
            while True:
                await self.lists.changed()
                await self.lists.flush()
                await self.history.follow()

    async def _give_back_kept(self) -> None:
        while True:
            await anyio.sleep(KEPT_S)
            if self._threads.kept:
                # Whatever has failed fails at the next time too, until it is over.
                with suppress(OSError), anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(self._threads.give_back_kept)

    def _note_change(self, state: ThreadState) -> None:
        self.lists.note_change(state)
        self.history.note_change(state.id)

    @property
    def figures(self) -> Mapping[str, int]:
        """Return what is counted and measured; see ThreadStore.figures."""
        synced, unsynced = self._appenders
        left_s = self.nodes.held_until - time.monotonic() if self.nodes.is_held else 0
        return {
            "store.appends": synced.times.count + unsynced.times.count,
            "store.appends.synced_p50_us": synced.times.quantile_us(0.5),
            "store.appends.synced_p99_us": synced.times.quantile_us(0.99),
            "store.appends.largest_group": max(synced.largest_group, unsynced.largest_group),
            "store.appends.fenced": synced.fenced + unsynced.fenced,
            "store.lease.left_ms": max(0, round(left_s * 1000)),
            "store.threads.written": len(self._threads.held),
            "store.threads.taken_over": self.nodes.taken_over,
            **self._database.pool_figures(),
        }

    async def aclose(self) -> None:
        """Write what is behind and close the connections."""
        with anyio.CancelScope(shield=True):
            async with AsyncExitStack() as closing:
                closing.callback(self._database.close)
                closing.push_async_callback(self._appenders.unsynced.aclose)
                closing.push_async_callback(self._appenders.synced.aclose)
                closing.push_async_callback(self.nodes.aclose)
                await self.lists.flush()
                await self.history.follow()

    def _lock(self, thread_id: str) -> anyio.Lock:
        """Held while a thread is taken, given back or removed: nothing of it meets here."""
        return self._locks.setdefault(thread_id, anyio.Lock())

    async def create(self, created: ThreadCreated) -> LiveThread:
        """Begin a thread; see ThreadStore.create."""
        state = begin(created)
        uuid_of(state.id)
        if created.ephemeral:
            if await self.exists(state.id):
                raise ThreadExists(state.id)
            return LiveThread(state, None, lambda _: None)
        async with self._lock(state.id):
            with anyio.CancelScope(shield=True):
                thread = await anyio.to_thread.run_sync(self._threads.create, state, created)
        return thread

    async def load(self, thread_id: str) -> LiveThread:
        """Bring a stored thread into memory, to write it; see ThreadStore.load.

        Where its server seems to have died, this waits until that is certain.
        """
        until = time.monotonic() + SUSPECT_S
        while True:
            death = self.nodes.next_death
            try:
                async with self._lock(thread_id):
                    with anyio.CancelScope(shield=True):
                        return await anyio.to_thread.run_sync(self._threads.load, thread_id)
            except ThreadBusy:
                may_die = partial(self._threads.is_suspect, uuid_of(thread_id))
                if time.monotonic() > until or not await anyio.to_thread.run_sync(may_die):
                    raise
                with anyio.move_on_after(SUSPECT_LOOK_S):
                    await death.wait()

    async def fork(self, source_id: str, point: ForkPoint, created: ThreadCreated) -> LiveThread:
        """Begin a thread with what another one's turns have written; see ThreadStore.fork."""
        uuid_of(created.thread_id)
        with anyio.CancelScope(shield=True):
            thread = await anyio.to_thread.run_sync(self._threads.fork, source_id, point, created)
        if not created.ephemeral:
            self._note_change(thread.state)
        return thread

    async def delete(self, thread_id: str) -> None:
        """Remove a thread that is not loaded, for good; see ThreadStore.delete."""
        known = uuid_of(thread_id)
        async with self._lock(thread_id):
            with anyio.CancelScope(shield=True):
                self.lists.forget(thread_id)
                self.history.forget(thread_id)
                await anyio.to_thread.run_sync(self._threads.delete, known)

    async def unload(self, thread: LiveThread, *, goes_on: bool = False) -> None:
        """Close a thread's log, with its final row in lists; see ThreadStore.unload."""
        # Also for who is cancelled: nobody else gives it back.
        with anyio.CancelScope(shield=True):
            async with self._lock(thread.id):
                await thread.aclose()
                if thread.ephemeral:
                    return
                self.lists.forget(thread.id)
                close = partial(self._threads.close, thread, goes_on=goes_on)
                await anyio.to_thread.run_sync(close)

    async def read(self, thread_id: str) -> ThreadState:
        """Read a thread without loading it; see ThreadStore.read."""
        return await anyio.to_thread.run_sync(self._threads.read, thread_id)

    async def require_free(self, thread_id: str) -> None:
        """Look whether another process writes a thread that is not loaded here.

        Raises:
            ThreadBusy
        """
        try:
            known = uuid_of(thread_id)
        except InvalidThreadId:
            return
        async with self._lock(thread_id):
            await anyio.to_thread.run_sync(self._threads.require_free, known)

    async def change(
        self, thread_id: str, decide: Callable[[ThreadState], Sequence[Record]]
    ) -> tuple[ThreadState, Sequence[Record]]:
        """Add what `decide` makes of the state of a thread that is not loaded; see ThreadStore."""
        thread = await self.load(thread_id)
        try:
            added = await thread.change(decide)
        finally:
            with anyio.CancelScope(shield=True):
                await self.unload(thread)
        return thread.state, added

    async def exists(self, thread_id: str) -> bool:
        """Whether a thread is stored; those in memory alone are not.

        Raises:
            InvalidThreadId: not a UUID in its usual form.
        """
        return await anyio.to_thread.run_sync(self._threads.exists, uuid_of(thread_id))

    async def exported(self, thread_id: str, limit: int) -> bytes | None:
        """Return the lines of a thread's log, for a report; see ThreadStore.exported."""
        return await anyio.to_thread.run_sync(self._threads.exported, thread_id, limit)

    def shown_path(self, thread_id: str) -> str | None:
        """Return None: threads of a database have no file."""
        uuid_of(thread_id)
        return None

    def is_path_of(self, thread_id: str, path: str) -> bool:
        """Return False: threads of a database have no file."""
        uuid_of(thread_id)
        return False
