"""All threads of a database.

A server holds a lock of the database as long as it lives, and a thread names the server that
writes it: whose lock is free is dead, and its threads are anybody's. Each time a thread is taken
its epoch grows, and appends of an older one are refused.
Source: docs/scale.md, "Who writes a thread".
"""

import logging
import os
import socket
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from uuid import UUID
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
import psycopg

from app_server.runtime.clock import STARTED_AT
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
from app_server.threads.log.reading import (
    ForkPoint,
    add_up,
    lines_in,
    load_state,
    ranges_to_copy,
    read_created,
)
from app_server.threads.log.state import ThreadState, begin
from app_server.threads.owners import Owner
from app_server.threads.postgresql.database import AsyncConnection, Database, failure_of
from app_server.threads.postgresql.history import PostgresHistory
from app_server.threads.postgresql.lists import CHANGED, INSERTED, PostgresLists, as_json
from app_server.threads.postgresql.organization import PostgresOrganization
from app_server.threads.postgresql.records import (
    Appenders,
    DatabaseLog,
    DatabaseWriter,
    GroupAppender,
)
from app_server.threads.postgresql.requirements import require_usable
from app_server.threads.rows import ThreadRow
from protocol.log.rollout import Record, ThreadCreated, render_record

logger = logging.getLogger(__name__)

NODE_LOCK = 0x6E6F6465
"""Class of the advisory locks that servers hold."""
LOOK_S = 3.0
"""Seconds between looks whether this server still holds its lock, and at rows of dead ones."""
COPY_BYTES = 1 << 20
"""Bytes of a row that a fork begins with, but for a longer line."""

_LIVES = f"""EXISTS (
    SELECT 1 FROM nodes JOIN pg_locks ON locktype = 'advisory' AND objsubid = 2 AND granted
        AND classid = {NODE_LOCK} AND objid = nodes.lock::oid
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
    WHERE nodes.id = threads.owner
)"""
_TAKE = f"""
UPDATE threads SET owner = %(me)s, epoch = epoch + 1
WHERE id = %(id)s AND (owner IS NULL OR owner = %(me)s OR NOT {_LIVES})
RETURNING epoch
"""
_HOLDER = f"""
SELECT nodes.pid, nodes.started_at, nodes.address, owner = %(me)s
FROM threads LEFT JOIN nodes ON nodes.id = threads.owner
WHERE threads.id = %(id)s AND owner IS NOT NULL AND {_LIVES}
"""
_OWNER = f"""
SELECT extract(epoch FROM clock_timestamp())::float8, found.id, found.address
FROM (VALUES (1)) AS asked LEFT JOIN (
    SELECT nodes.id::text AS id, nodes.address FROM threads JOIN nodes ON nodes.id = threads.owner
    WHERE threads.id = %(id)s AND {_LIVES}
) AS found ON true
"""
_GIVE_BACK = "UPDATE threads SET owner = NULL WHERE id = %s AND owner = %s AND epoch = %s"
ANNOUNCE = """
INSERT INTO nodes (id, host, pid, started_at, address) VALUES (%s, %s, %s, %s, %s) RETURNING lock
"""
_FORGET_DEAD = f"""
DELETE FROM nodes WHERE id <> %s AND NOT EXISTS (
    SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted
        AND classid = {NODE_LOCK} AND objid = nodes.lock::oid
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
)
"""
_LEFT_BEHIND = f"SELECT id::text FROM threads WHERE owner IS NOT NULL AND NOT {_LIVES}"
_ADD = "INSERT INTO records (thread_id, position, epoch, body) VALUES (%s, %s, 1, %s)"


class _Node:
    """The row of this server for others, and the lock that ends with its session."""

    def __init__(self, database: Database, address: str | None) -> None:
        self.id = uuid.uuid4()
        self._database = database
        self._address = address
        self._session: AsyncConnection | None = None

    async def announce(self) -> None:
        """Take the lock, or make sure that it is held.

        Raises:
            StoreUnavailable
        """
        try:
            if self._session is not None and not self._session.closed:
                await self._session.execute("SELECT 1")
                return
            session = self._session = await self._database.connect_async()
            await session.execute("DELETE FROM nodes WHERE id = %s", (self.id,))
            entry = self.id, socket.gethostname(), os.getpid(), STARTED_AT, self._address
            (lock,) = await (await session.execute(ANNOUNCE, entry)).fetchone() or (None,)
            await session.execute("SELECT pg_advisory_lock(%s, %s)", (NODE_LOCK, lock))
        except psycopg.Error as exc:
            raise failure_of(exc) from exc

    async def aclose(self) -> None:
        """Take the row away and free the lock."""
        session, self._session = self._session, None
        if session is not None:
            try:
                await session.execute("DELETE FROM nodes WHERE id = %s", (self.id,))
            except psycopg.Error as exc:
                logger.warning("this server stays in the list of servers: %s", failure_of(exc))
            await session.close()


def take(database: Database, node_id: UUID, thread_id: UUID) -> int:
    """Make a server the one that writes a thread; the new epoch.

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
    return int(row[0])


def give_back(
    database: Database,
    node_id: UUID,
    thread_id: UUID,
    epoch: int,
    state: ThreadState | None = None,
) -> None:
    """Let others write a thread, with its final row if its state is given.

    Raises:
        StoreUnavailable
    """
    with database.transaction() as connection:
        given = connection.execute(_GIVE_BACK, (thread_id, node_id, epoch))
        if given.rowcount and state is not None:
            connection.execute(CHANGED.encode(), (as_json([ThreadRow.of(state)]),))


@dataclass(frozen=True, slots=True)
class DatabaseThreads:
    """The threads of a database, taken and given back for one server. Everything here blocks."""

    database: Database
    node_id: UUID
    appenders: Appenders
    changed: Callable[[ThreadState], None]
    """Called after every append to a thread that was opened here."""

    def _log(self, thread_id: UUID) -> DatabaseLog:
        return DatabaseLog(self.database, thread_id)

    def _live(
        self, state: ThreadState, epoch: int, end: int, warnings: Sequence[str] = ()
    ) -> LiveThread:
        writer = DatabaseWriter(self._log(uuid_of(state.id)), epoch, end, self.appenders)
        return LiveThread(state, writer, self.changed, warnings)

    def insert(self, thread_id: UUID, state: ThreadState, bodies: Sequence[bytes]) -> int:
        """Begin a thread that this server writes; returns the bytes of its log."""
        with self.database.transaction() as connection:
            row = as_json([ThreadRow.of(state)])
            if connection.execute(INSERTED.encode(), (self.node_id, row)).fetchone() is None:
                raise ThreadExists(state.id)
            position = 0
            for body in bodies:
                connection.execute(_ADD, (thread_id, position, body), binary=True)
                position += len(body)
        return position

    def load(self, thread_id: str) -> LiveThread:
        """Take a thread, and read its log; see ThreadStore.load."""
        known, faults = uuid_of(thread_id), LogFaults()
        log = self._log(known)
        with log_failures(thread_id):
            # A log that is not known is not taken either.
            read_created(log)
            epoch = take(self.database, self.node_id, known)
        try:
            with log_failures(thread_id):
                state = load_state(log, faults)
                end = log.size()
            with self.database.connection() as connection:
                connection.execute(CHANGED.encode(), (as_json([ThreadRow.of(state)]),))
        except BaseException:
            give_back(self.database, self.node_id, known, epoch)
            raise
        warnings = faults.texts(str(log))
        for text in warnings:
            logger.warning("%s", text)
        return self._live(state, epoch, end, warnings)

    def fork(self, source_id: str, point: ForkPoint, created: ThreadCreated) -> LiveThread:
        """Begin a thread with a part of another one; see ThreadStore.fork."""
        source = self._log(uuid_of(source_id))
        with log_failures(source_id):
            read_created(source)
            ranges = ranges_to_copy(source, point)
            if created.ephemeral:
                state = add_up(begin(created), lines_in(source, ranges), source)
                return LiveThread(state, None, lambda _: None)
            bodies, size = [[render_record(created)]], 0
            for line in lines_in(source, ranges):
                if size > COPY_BYTES:
                    bodies.append([])
                    size = 0
                bodies[-1].append(line.content)
                size += len(line.content)
        known = uuid_of(created.thread_id)
        end = self.insert(known, begin(created), [b"".join(lines) for lines in bodies])
        try:
            state = load_state(self._log(known))
        except BaseException:
            # Nobody was told of it, so it does not exist.
            self.delete(known)
            raise
        return self._live(state, 1, end)

    def delete(self, thread_id: UUID) -> None:
        """Remove a thread and all that is derived of it; see ThreadStore.delete."""
        try:
            with log_failures(str(thread_id)):
                read_created(self._log(thread_id))
        except ThreadDamaged:
            # A first line that is damaged is none of a newer version.
            pass
        take(self.database, self.node_id, thread_id)
        with self.database.transaction() as connection:
            for table in ("texts", "turns", "outlines", "records"):
                connection.execute(
                    f"DELETE FROM {table} WHERE tenant = (SELECT current_tenant()) "
                    "AND thread_id = %s",
                    (thread_id,),
                )
            connection.execute("DELETE FROM threads WHERE id = %s", (thread_id,))

    def close(self, thread_id: UUID, state: ThreadState) -> None:
        """Give a thread back, with its final row."""
        try:
            with self.database.transaction() as connection:
                given = connection.execute(
                    "UPDATE threads SET owner = NULL WHERE id = %s AND owner = %s",
                    (thread_id, self.node_id),
                )
                if given.rowcount:
                    connection.execute(CHANGED.encode(), (as_json([ThreadRow.of(state)]),))
        except OSError as exc:
            # It stays this server's, and is taken again by its next load.
            logger.warning("thread %s cannot be given back: %s", thread_id, exc)

    def read(self, thread_id: str) -> ThreadState:
        """Read a thread without what the model sees; see ThreadStore.read."""
        log = self._log(uuid_of(thread_id))
        with log_failures(thread_id):
            return load_state(log, with_history=False)

    def require_free(self, thread_id: UUID) -> None:
        """Look whether another server writes a thread; see ThreadStore.require_free."""
        values = {"me": self.node_id, "id": thread_id}
        with self.database.connection() as connection:
            row = connection.execute(_HOLDER.encode(), values).fetchone()
        if row is not None and not row[3]:
            raise ThreadBusy(Holder(row[0], row[1], row[2]))

    def owner(self, thread_id: UUID | None) -> tuple[float, Owner | None]:
        """Return the database's time in seconds, and the owner of a thread if it lives."""
        with self.database.connection() as connection:
            row = connection.execute(_OWNER.encode(), {"id": thread_id}).fetchone()
        assert row is not None, "there is a row for each time"
        return row[0], None if row[1] is None else Owner(row[1], row[2])

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

    def repair(self) -> Sequence[str]:
        """Make the rows of threads anew whose servers have died, and give these back; their ids."""
        with self.database.connection() as connection:
            connection.execute(_FORGET_DEAD.encode(), (self.node_id,))
            left = [row[0] for row in connection.execute(_LEFT_BEHIND.encode())]
        made = []
        for thread_id in left:
            try:
                epoch = take(self.database, self.node_id, uuid_of(thread_id))
                state = self.read(thread_id)
            except (ThreadBusy, ThreadNotFound, ThreadDamaged):
                # Another server was first, or there is nothing to make a row of.
                continue
            give_back(self.database, self.node_id, uuid_of(thread_id), epoch, state)
            made.append(thread_id)
        return made


class PostgresStore:
    """All threads of a database, or of a role's part of it."""

    def __init__(self, database: Database, address: str | None = None) -> None:
        """Name the database; nothing is opened yet.

        `address` is where clients find this process, for refusals of other processes.
        """
        self._database = database
        self._node = _Node(database, address)
        self._appenders = Appenders(
            GroupAppender(database, synced=True), GroupAppender(database, synced=False)
        )
        self._threads = DatabaseThreads(database, self._node.id, self._appenders, self._note_change)
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self._ahead_s = 0.0
        """By how much the database's clock is ahead of the monotonic one of this process."""
        self.lists = PostgresLists(database, self._node.id)
        """Lists of all threads."""
        self.history = PostgresHistory(database, self.lists)
        """Pages of one thread, and searches over all."""
        self.organization = PostgresOrganization(database, self.lists)
        """The projects and sections that threads can be in."""

    async def open(self) -> None:
        """Connect, and make anew the rows that servers which died left behind.

        Raises:
            StoreUnavailable: the database cannot be used.
        """
        await anyio.to_thread.run_sync(self._database.open)
        await anyio.to_thread.run_sync(require_usable, self._database)
        await self._node.announce()
        await self._ask_owner(None)
        await self.organization.refresh()
        await self._repair()

    async def run(self) -> None:
        """Keep rows, texts and the lock of this server up to date, until cancelled."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._look)
            while True:
                await self.lists.changed()
                await self.lists.flush()
                await self.history.follow()

    async def _look(self) -> None:
        fails = False
        while True:
            await anyio.sleep(LOOK_S)
            try:
                await self._node.announce()
                await self._repair()
                fails = False
            except OSError as exc:
                if not fails:
                    logger.warning("the database cannot be used, and is tried again: %s", exc)
                fails = True

    async def _repair(self) -> None:
        for thread_id in await anyio.to_thread.run_sync(self._threads.repair):
            self.history.note_change(thread_id)

    def _note_change(self, state: ThreadState) -> None:
        self.lists.note_change(state)
        self.history.note_change(state.id)

    async def aclose(self) -> None:
        """Write what is behind and close the connections."""
        with anyio.CancelScope(shield=True):
            async with AsyncExitStack() as closing:
                closing.callback(self._database.close)
                closing.push_async_callback(self._appenders.unsynced.aclose)
                closing.push_async_callback(self._appenders.synced.aclose)
                closing.push_async_callback(self._node.aclose)
                await self.lists.flush()
                await self.history.follow()

    def _lock(self, thread_id: str) -> anyio.Lock:
        """Held while a thread is taken, given back or removed: nothing of it meets here."""
        return self._locks.setdefault(thread_id, anyio.Lock())

    async def create(self, created: ThreadCreated) -> LiveThread:
        """Begin a thread; see ThreadStore.create."""
        state = begin(created)
        thread_id = uuid_of(state.id)
        if created.ephemeral:
            if await self.exists(state.id):
                raise ThreadExists(state.id)
            return LiveThread(state, None, lambda _: None)
        first = render_record(created)
        async with self._lock(state.id):
            with anyio.CancelScope(shield=True):
                insert = partial(self._threads.insert, thread_id, state, [first])
                await anyio.to_thread.run_sync(insert)
        return self._threads._live(state, 1, len(first))

    async def load(self, thread_id: str) -> LiveThread:
        """Bring a stored thread into memory, to write it; see ThreadStore.load."""
        async with self._lock(thread_id):
            with anyio.CancelScope(shield=True):
                thread = await anyio.to_thread.run_sync(self._threads.load, thread_id)
        return thread

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

    async def unload(self, thread: LiveThread) -> None:
        """Close a thread's log, with its final row in lists."""
        async with self._lock(thread.id):
            with anyio.CancelScope(shield=True):
                await thread.aclose()
                if thread.ephemeral:
                    return
                self.lists.forget(thread.id)
                close = partial(self._threads.close, uuid_of(thread.id), thread.state)
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

    @property
    def node_id(self) -> str:
        """Id of this server; see ThreadOwners."""
        return str(self._node.id)

    def now_s(self) -> float:
        """Return the seconds of the database's clock; see ThreadOwners."""
        return time.monotonic() + self._ahead_s

    async def owner(self, thread_id: str) -> Owner | None:
        """Return the owner of a thread; see ThreadOwners."""
        try:
            return await self._ask_owner(uuid_of(thread_id))
        except InvalidThreadId:
            return None

    async def _ask_owner(self, thread_id: UUID | None) -> Owner | None:
        now_s, owner = await anyio.to_thread.run_sync(self._threads.owner, thread_id)
        self._ahead_s = now_s - time.monotonic()
        return owner

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
