"""The row of this server for others of its group, its lease, and the end of those that died.

A server renews its lease over a session that holds an advisory lock. Whose lease ran out, or whose
lock is free although it does not renew, is marked as dead by whoever sees it first, for good: then
its threads are anybody's. All times that servers compare are PostgreSQL's.
Source: docs/scale.md, "Nodes".
"""

import logging
import os
import socket
import threading
import time
import uuid
from collections import deque
from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

import anyio
import anyio.to_thread
import psycopg

from app_server.runtime.clock import STARTED_AT
from app_server.threads.failures import (
    Holder,
    InvalidThreadId,
    OwnershipLost,
    StoreUnavailable,
    ThreadNotFound,
    uuid_of,
)
from app_server.threads.nodes import (
    LeaseEnded,
    LeaseNews,
    LeaseRenewed,
    Node,
    NodeSettings,
    Owner,
    ThreadsLost,
)
from app_server.threads.postgresql.database import AsyncConnection, Database, failure_of
from app_server.threads.postgresql.requirements import StoreUnusable

logger = logging.getLogger(__name__)

NODE_LOCK = 0x6E6F6465
"""Class of the advisory locks that servers hold."""
RENEW_SHARE = 0.3
"""Of a lease, after which it is renewed."""
LOOK_S = 1.0
"""Seconds between looks at other nodes, but for one that is about to be dead."""
MIN_LOOK_S = 0.05
RETRY_S = 0.25
"""Seconds between tries to reach the database."""
LOCK_FREE_S = 2.0
"""Seconds for which a lock is free until its server is taken for dead: a session may be lost."""
MAX_LEFT_BEHIND = 1000
"""Threads of dead nodes that are found at once."""

_LOCK_HELD = f"""EXISTS (
    SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 2 AND granted
        AND classid = {NODE_LOCK} AND objid = nodes.lock::oid
        AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
)"""
LIVES = "EXISTS (SELECT 1 FROM nodes WHERE nodes.id = threads.owner AND NOT nodes.dead)"
"""Whether the owner of a row of `threads` may write it."""
SUSPECT = f"""
SELECT 1 FROM threads JOIN nodes ON nodes.id = threads.owner
WHERE threads.id = %s AND (nodes.dead OR nodes.expires_at < clock_timestamp() OR NOT {_LOCK_HELD})
"""
"""Whether the owner of a thread may be dead."""
ANNOUNCED = """
INSERT INTO nodes (
    id, host, pid, started_at, address, is_reached, version, settings_digest, expires_at
) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, clock_timestamp() + %s * interval '1 second')
RETURNING lock, extract(epoch FROM clock_timestamp())::float8
"""
_RENEWED = """
UPDATE nodes SET expires_at = clock_timestamp() + %s * interval '1 second'
WHERE id = %s AND NOT dead RETURNING extract(epoch FROM clock_timestamp())::float8
"""
_OTHERS = f"""
SELECT id, expires_at,
    CASE WHEN expires_at = 'infinity' THEN 'infinity'
        ELSE extract(epoch FROM expires_at - clock_timestamp())::float8 END,
    {_LOCK_HELD},
    clock_timestamp() > pg_postmaster_start_time() + %s * interval '1 second',
    coalesce(address = %s AND (is_reached OR host = %s), false)
FROM nodes WHERE NOT dead AND id <> %s
"""
_MARKED = """
UPDATE nodes SET dead = true
WHERE id = %s AND NOT dead AND expires_at = %s RETURNING id
"""
_FORGOTTEN = """
DELETE FROM nodes WHERE dead AND id <> %s
    AND NOT EXISTS (SELECT 1 FROM threads WHERE threads.owner = nodes.id)
"""
_LEFT_BEHIND = f"""
SELECT id::text FROM threads
WHERE tenant = (SELECT current_tenant()) AND has_work AND owner IS NOT NULL AND NOT {LIVES}
ORDER BY random() LIMIT {MAX_LEFT_BEHIND}
"""
_ELSEWHERE = """
SELECT threads.id::text FROM threads JOIN nodes ON nodes.id = threads.owner
WHERE threads.tenant = (SELECT current_tenant()) AND threads.owner <> %s
    AND NOT nodes.dead AND nodes.is_reached AND (threads.created_at_ms, threads.id) > (%s, %s)
ORDER BY threads.created_at_ms, threads.id LIMIT %s
"""
_BEGUN = "SELECT created_at_ms, id FROM threads WHERE id = %s"
_FIRST = (-1, UUID(int=0))
_SHOWN = "UPDATE nodes SET settings_digest = %s WHERE id = %s RETURNING id"
_OWNER = """
SELECT nodes.id::text, CASE WHEN nodes.is_reached THEN nodes.address END
FROM threads JOIN nodes ON nodes.id = threads.owner
WHERE threads.id = %s AND NOT nodes.dead
"""
_NODE = """
SELECT nodes.id::text, host, pid, started_at, address, version,
    settings_digest, dead, extract(epoch FROM
        CASE WHEN expires_at = 'infinity' THEN interval '0' ELSE expires_at - clock_timestamp() END
    )::float,
    (SELECT count(*) FROM threads
        WHERE tenant = (SELECT current_tenant()) AND threads.owner = nodes.id)
FROM nodes ORDER BY nodes.lock"""


def announcement(
    node_id: UUID, settings: NodeSettings, settings_digest: str = ""
) -> tuple[Any, ...]:
    """Return the values of `ANNOUNCED` for this process."""
    return (
        node_id,
        socket.gethostname(),
        os.getpid(),
        STARTED_AT,
        settings.address,
        settings.is_reached,
        settings.version,
        settings_digest,
        settings.lease_s,
    )


def lease_lost() -> OwnershipLost:
    """Say that this server may write nothing until its lease is renewed."""
    return OwnershipLost("this server has lost its lease", "databaseUnavailable", retriable=True)


class PostgresNodes:
    """The nodes of a database, and the lease of this one; see Nodes."""

    def __init__(self, database: Database, settings: NodeSettings) -> None:
        self.id = uuid.uuid4()
        self.held_until = float("-inf")
        """Time of the event loop's clock at which the lease ends; counted from before it was asked
        for, so that it never ends later than for others."""
        self.is_held = False
        self.taken_over = 0
        """Threads of dead nodes, or left by their owner, that this server has taken so far."""
        self._database = database
        self._settings = settings
        self._settings_digest = ""
        self._session: AsyncConnection | None = None
        self._lock: int | None = None
        """Number of the advisory lock, once there is a row."""
        self._has_lock = False
        self._renew_at = 0.0
        self._counting = threading.Lock()
        self._ahead_s = 0.0
        """By how much the database's clock is ahead of the monotonic one of this process."""
        self._may_mark_from = float("inf")
        """Others get the time to come back, too: nobody knows how long the database was away."""
        self._free_since: dict[UUID, tuple[datetime, float]] = {}
        """When the locks of others were first seen free, and how long their leases were then."""
        self._look_at = 0.0
        """When others are looked at again."""
        self._living: set[UUID] = set()
        """Other nodes that were not dead at the last look."""
        self._next_death = anyio.Event()
        self._news: deque[LeaseNews] = deque()
        self._changed = anyio.Event()
        """Replaced with every change of the lease, and with news."""

    @property
    def own_id(self) -> str:
        """The id that this server has now."""
        return str(self.id)

    # The lease.

    async def open(self) -> None:
        """Announce this server.

        One with its address that was killed is waited for, until it is taken for dead.

        Raises:
            StoreUnusable: another node has this address.
            StoreUnavailable
        """
        until = time.monotonic() + self._settings.lease_s + LOCK_FREE_S + 2 * LOOK_S
        while True:
            try:
                await self._tick()
            except StoreUnavailable as exc:
                if not isinstance(exc.__cause__, psycopg.errors.UniqueViolation):
                    raise
                if time.monotonic() > until:
                    raise StoreUnusable(
                        f"another node has the address {self._settings.address}; give each one "
                        "its own"
                    ) from None
                await self._mark_dead()
                await anyio.sleep(RETRY_S)
            else:
                return

    async def run(self) -> None:
        """Renew the lease and look at other nodes, until cancelled."""
        fails = False
        while True:
            look_s = max(MIN_LOOK_S, self._look_at - time.monotonic())
            await anyio.sleep(RETRY_S if fails else look_s)
            now, answer_s = time.monotonic(), self._settings.lease_s / 2
            if self.is_held and now < self.held_until:
                answer_s = min(answer_s, self.held_until - now)
            reason: str | None = "it does not answer"
            with anyio.move_on_after(answer_s):
                try:
                    await self._tick()
                    reason = None
                except OSError as exc:
                    reason = str(exc)
            if reason is not None:
                if not fails:
                    logger.warning("the database cannot be used, and is tried again: %s", reason)
                await self._drop_session()
            fails = reason is not None
            if self.is_held and time.monotonic() >= self.held_until:
                logger.error("this node could not renew its lease; what it does ends")
                self.is_held = False
                self._tell(LeaseEnded())

    async def _tick(self) -> None:
        try:
            session = await self._connected()
            if time.monotonic() >= self._renew_at:
                await self._renew(session)
            if not self._has_lock:
                statement = "SELECT pg_try_advisory_lock(%s, %s)"
                (self._has_lock,) = await _one(session, statement, NODE_LOCK, self._lock)
            await self._mark_dead()
        except psycopg.Error as exc:
            raise failure_of(exc) from exc

    async def _connected(self) -> AsyncConnection:
        if self._session is None or self._session.closed:
            self._session, self._has_lock = await self._database.connect_async(), False
            self._renew_at = 0.0
            self._may_mark_from = time.monotonic() + self._settings.lease_s
            self._free_since.clear()
        return self._session

    async def _renew(self, session: AsyncConnection) -> None:
        sent = time.monotonic()
        if self._lock is not None:
            values = self._settings.lease_s, self.id
            renewed = await (await session.execute(_RENEWED, values)).fetchone()
            if renewed is not None:
                self._ahead_s = renewed[0] - time.monotonic()
            else:
                logger.error("this node was taken for dead, and begins anew under another id")
                self._lock, self._has_lock, self.id = None, False, uuid.uuid4()
                self._tell(ThreadsLost())
        if self._lock is None:
            announced = announcement(self.id, self._settings, self._settings_digest)
            self._lock, now_s = await _one(session, ANNOUNCED, *announced)
            self._ahead_s = now_s - time.monotonic()
        self._renew_at = sent + RENEW_SHARE * self._settings.lease_s
        self.held_until = sent + self._settings.lease_s
        was_lost, self.is_held = not self.is_held, True
        if was_lost:
            self._tell(LeaseRenewed())
        else:
            self._wake()

    @property
    def next_death(self) -> anyio.Event:
        """An event for the next death; see Nodes.next_death."""
        return self._next_death

    def now_s(self) -> float:
        """Return the seconds of the database's clock; see Nodes.now_s."""
        return time.monotonic() + self._ahead_s

    def require_held(self) -> None:
        """Refuse to go on after the lease has ended.

        Raises:
            OwnershipLost
        """
        if not self.is_held:
            raise lease_lost()

    async def require_lease(self) -> None:
        """Wait for a renewal that is due; see Nodes.require_lease."""
        self.require_held()
        while time.monotonic() >= self.held_until:
            await self._changed.wait()
            self.require_held()

    def note_lost(self) -> None:
        """Take note that the log of a thread was found to be another server's."""
        self._tell(ThreadsLost())

    def note_taken_over(self) -> None:
        """Count a thread of a dead node, or one that its owner left; on any thread."""
        with self._counting:
            self.taken_over += 1

    def _tell(self, news: LeaseNews) -> None:
        self._news.append(news)
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = anyio.Event()

    async def news(self) -> LeaseNews:
        """Wait for a change that this server must act upon; see Nodes.news."""
        while not self._news:
            await self._changed.wait()
        return self._news.popleft()

    async def aclose(self) -> None:
        """Have others take what is left of this server's threads, and free the lock."""
        session = self._session
        if session is not None and not session.closed:
            try:
                await session.execute("UPDATE nodes SET dead = true WHERE id = %s", (self.id,))
                await session.execute(_FORGOTTEN, (uuid.UUID(int=0),))
            except psycopg.Error as exc:
                logger.warning("other nodes take this one for alive: %s", failure_of(exc))
        await self._drop_session()

    async def _drop_session(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    # Others.

    async def _mark_dead(self) -> None:
        session = self._session
        assert session is not None
        now = time.monotonic()
        settings = self._settings
        values = settings.lease_s, settings.address, socket.gethostname(), self.id
        others = await (await session.execute(_OTHERS, values)).fetchall()
        free, self._free_since = self._free_since, {}
        self._look_at = now + LOOK_S
        living = set()
        for node_id, expires_at, left_s, is_locked, is_long_up, is_replaced in others:
            living.add(node_id)
            since, is_over = now, left_s < 0
            if not is_locked:
                seen_expiry, since = free.get(node_id, (expires_at, now))
                since = since if seen_expiry == expires_at else now
                self._free_since[node_id] = expires_at, since
            if not is_over and now - since < LOCK_FREE_S:
                due_s = left_s if is_locked else min(left_s, since + LOCK_FREE_S - now)
                self._look_at = min(self._look_at, now + due_s)
                continue
            # One at this server's own address does not come back.
            if not is_replaced and (now < self._may_mark_from or not is_long_up):
                continue
            marked = await session.execute(_MARKED, (node_id, expires_at))
            if await marked.fetchone() is not None:
                living.discard(node_id)
                reason = "its lease ran out" if is_over else "its process ended"
                logger.warning("node %s is dead: %s", node_id, reason)
                await session.execute(_FORGOTTEN, (self.id,))
        has_died, self._living = bool(self._living - living), living
        if has_died:
            self._next_death.set()
            self._next_death = anyio.Event()

    async def owner(self, thread_id: str) -> Owner | None:
        """Return the owner of a thread; see Nodes.owner."""
        try:
            known = uuid_of(thread_id)
        except InvalidThreadId:
            return None
        rows = await anyio.to_thread.run_sync(self._asked, _OWNER, known)
        return Owner(*rows[0]) if rows else None

    async def announce_settings(self, digest: str) -> None:
        """Show the digest of this server's settings; see Nodes.announce_settings."""
        self._settings_digest = digest
        await anyio.to_thread.run_sync(self._asked, _SHOWN, digest, self.id)

    async def loaded_elsewhere(self, after: str | None, limit: int) -> Sequence[str]:
        """Return threads that others of the group write; see Nodes.loaded_elsewhere."""
        place: tuple[Any, ...] = _FIRST
        if after is not None:
            found = await anyio.to_thread.run_sync(self._asked, _BEGUN, uuid_of(after))
            if not found:
                raise ThreadNotFound(after)
            (place,) = found
        values = self.id, *place, limit
        rows = await anyio.to_thread.run_sync(self._asked, _ELSEWHERE, *values)
        return [thread_id for (thread_id,) in rows]

    async def left_behind(self) -> Sequence[str]:
        """Return threads that a dead node had at work; see Nodes.left_behind."""
        return [row[0] for row in await anyio.to_thread.run_sync(self._asked, _LEFT_BEHIND)]

    async def all(self) -> Sequence[Node]:
        """Return the nodes, in the order in which they came; see Nodes.all."""
        return await anyio.to_thread.run_sync(all_nodes, self._database)

    def _asked(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._database.connection() as connection:
            return connection.execute(statement.encode(), values).fetchall()


def all_nodes(database: Database) -> Sequence[Node]:
    """Return the nodes of a database; see Nodes.all. Blocks."""
    with database.connection() as connection:
        return list(map(_node, connection.execute(_NODE.encode()).fetchall()))


def _node(row: Sequence[Any]) -> Node:
    node_id, host, pid, started_at, address, *rest = row
    return Node(node_id, host, Holder(pid, started_at, address), *rest)


async def _one(session: AsyncConnection, statement: str, *values: Any) -> tuple[Any, ...]:
    row = await (await session.execute(statement.encode(), values)).fetchone()
    assert row is not None
    return row
