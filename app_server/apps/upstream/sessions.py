"""Sessions with the hosted endpoint: one for each local session that makes calls, and a bound.

Each has a task of its own, so that a call that hangs holds up no other. A session is opened by the
first call, kept for the next ones, and closed when it has been idle, when somebody else waits for
its place, when it breaks, or when its local session ends.
Source: docs/apps.md, "Sessions with the endpoint".
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Protocol, TypeAlias

import anyio
from anyio.abc import TaskGroup, TaskStatus

from app_server.apps.inventory.fetch import fetch_tools
from app_server.apps.routes.ports import DownstreamPeer, UpstreamSession
from app_server.apps.upstream.endpoint import UpstreamTarget
from app_server.apps.upstream.hosted_session import ElicitationBridge, open_session
from app_server.apps.upstream.places import (
    CloseReason,
    Places,
    PoolCounters,
    PoolLimits,
    Timer,
    Timers,
)
from app_server.mcp_wire.errors import PeerError
from protocol.jsonrpc.errors import INTERNAL_ERROR
from protocol.model import JsonObject

logger = logging.getLogger(__name__)


class LiveSession(UpstreamSession, Protocol):
    """A session as the pool holds it."""

    @property
    def is_broken(self) -> bool:
        """Whether no further request will work."""


Open: TypeAlias = Callable[
    [UpstreamTarget, ElicitationBridge], AbstractAsyncContextManager[LiveSession]
]
"""Opens a session whose questions go to a bridge; leaving closes it. Raises PeerError."""


class _Held:
    """One session, from its opening to its end."""

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.bridge = ElicitationBridge()
        self.opened: asyncio.Future[LiveSession] = asyncio.get_running_loop().create_future()
        self.opening = anyio.CancelScope()
        self.idle_timer: Timer | None = None
        self.reason: CloseReason | None = None
        self.stop = anyio.Event()
        self.gone = anyio.Event()

    def close(self, reason: CloseReason) -> None:
        """Begin to end; the first reason counts."""
        if self.reason is None:
            self.reason = reason
        self.stop.set()
        if not self.opened.done() or self.opened.cancelled():
            self.opening.cancel()


class UpstreamPool:
    """The sessions of one account at the endpoint: an `UpstreamPool` for the routes."""

    def __init__(
        self,
        target: UpstreamTarget,
        limits: PoolLimits | None = None,
        *,
        open_session: Open = open_session,
        timers: Timers | None = None,
    ) -> None:
        """Take an account; nothing is opened before the first call.

        Made inside the event loop, which keeps the time unless `timers` do.
        """
        self.counters = PoolCounters()
        self._target = target
        self._limits = limits or PoolLimits()
        self._open_session = open_session
        self._timers: Timers = timers or asyncio.get_running_loop()
        self._places = Places(self._limits, self.counters, self._timers)
        self._by_key: dict[Hashable, _Held] = {}
        self._all: set[_Held] = set()
        self._resting: dict[_Held, None] = {}
        """Sessions without a call, the one that has been longest without first."""
        self._tasks: TaskGroup | None = None
        self._over = anyio.Event()

    async def run(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Hold sessions until `shut_down`, or until this is cancelled; both close them all."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            task_status.started()
            try:
                await self._over.wait()
            finally:
                self._end_all()
        logger.debug("sessions with the apps, in all: %s", self.counters)

    def shut_down(self) -> None:
        """Begin to close everything; `run` returns when that is done."""
        self._over.set()

    def _end_all(self) -> None:
        self._tasks = None
        self._places.close()
        for held in self._all:
            self._close(held, "shutdown")

    @asynccontextmanager
    async def session_of(
        self, key: Hashable, peer: DownstreamPeer
    ) -> AsyncIterator[UpstreamSession]:
        """Get or open the session of a key; it is kept when the context ends.

        Meanwhile the endpoint's questions go to `peer`. A key has one such context at a time.
        Cancelling gives up the wait for a place, and the opening.

        Raises:
            PeerError: it cannot be opened, or no place became free.
        """
        held = self._by_key.get(key)
        if held is None:
            held = await self._begin(key)
        else:
            self._wake(held)
        with held.bridge.held_by(peer):
            try:
                yield held.opened.result()
            finally:
                self._rest(held)

    async def fetch_tools(self) -> list[JsonObject]:
        """List all tools of the account; see `app_server.apps.inventory.fetch.fetch_tools`.

        Raises:
            FetchFailed
        """
        self.counters.fetches += 1
        return await fetch_tools(self._target)

    async def close(self, key: Hashable) -> None:
        """End the session of a key, if there is one, with its call; returns when it is closed."""
        held = self._by_key.get(key)
        if held is not None:
            self._close(held, "ended")
            await held.gone.wait()

    async def _begin(self, key: Hashable) -> _Held:
        if not self._places.is_free:
            self._reclaim(for_me=1)
        await self._places.take()
        if self._tasks is None:
            self._places.give_back()
            raise PeerError(INTERNAL_ERROR, "the connection to the apps is closed")
        assert key not in self._by_key, "a key has one call at a time"
        held = self._by_key[key] = _Held(key)
        self._all.add(held)
        self._tasks.start_soon(self._hold, held)
        try:
            await held.opened
        except asyncio.CancelledError:
            self._close(held, "ended")
            raise
        return held

    async def _hold(self, held: _Held) -> None:
        failure = PeerError(INTERNAL_ERROR, "the session with the apps was closed")
        try:
            with held.opening:
                async with self._open_session(self._target, held.bridge) as session:
                    if not held.opened.done():
                        self.counters.opened += 1
                        held.opened.set_result(session)
                        await held.stop.wait()
        except PeerError as exc:
            failure = exc
            held.close("failed")
        except Exception:
            logger.exception("a session with the apps ended")
            held.close("broken")
        finally:
            self._forget(held, failure)

    def _forget(self, held: _Held, failure: PeerError) -> None:
        self._close(held, "shutdown")
        if not held.opened.done():
            held.opened.set_exception(failure)
        assert held.reason is not None
        self.counters.closed[held.reason] += 1
        self._all.discard(held)
        self._places.give_back()
        held.gone.set()

    def _close(self, held: _Held, reason: CloseReason) -> None:
        self._wake(held)
        if self._by_key.get(held.key) is held:
            del self._by_key[held.key]
        held.close(reason)

    def _wake(self, held: _Held) -> None:
        self._resting.pop(held, None)
        if held.idle_timer is not None:
            held.idle_timer.cancel()
            held.idle_timer = None

    def _rest(self, held: _Held) -> None:
        if held.reason is not None:
            return
        if held.opened.result().is_broken:
            self._close(held, "broken")
            return
        self._resting[held] = None
        held.idle_timer = self._timers.call_later(
            self._limits.idle_s, lambda: self._close(held, "idle")
        )
        self._reclaim()

    def _reclaim(self, for_me: int = 0) -> None:
        """Close idle sessions, one for each call that waits for a place."""
        closing = sum(held.reason is not None for held in self._all)
        wanted = max(0, self._places.wanted + for_me - closing)
        for held in list(self._resting)[:wanted]:
            self._close(held, "reclaimed")
