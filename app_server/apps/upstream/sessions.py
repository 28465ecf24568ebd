"""Sessions with the hosted endpoint: one for each local session that makes calls, and a bound.

Each has a task of its own, so that a call that hangs holds up no other. A session is opened by the
first call, kept for the next ones, and closed when it has been idle, when somebody else waits for
its place, when it breaks, or when its local session ends.
Source: docs/apps.md, "Sessions with the endpoint".
"""

import asyncio
import logging
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, TypeVarTuple

import anyio
from anyio.abc import TaskGroup, TaskStatus

from app_server.apps.inventory.fetch import fetch_tools
from app_server.apps.routes.backing import DownstreamPeer, UpstreamSession
from app_server.apps.upstream.endpoint import UpstreamTarget
from app_server.apps.upstream.hosted_session import ElicitationBridge, open_session
from app_server.mcp_wire.errors import PeerError
from protocol.jsonrpc.errors import INTERNAL_ERROR
from protocol.model import JsonObject

logger = logging.getLogger(__name__)

MAX_SESSIONS = 32
WAIT_S = 30.0
IDLE_S = 300.0

CloseReason: TypeAlias = Literal["idle", "reclaimed", "broken", "failed", "ended", "shutdown"]
"""`reclaimed`: another call waited for a place; `failed`: it was never open; `ended`: the local
session did."""


@dataclass(frozen=True, slots=True)
class PoolLimits:
    """The bounds of a pool: sessions, waits and idle time."""

    sessions: int = MAX_SESSIONS
    """Open at a time, those included that are being opened or closed."""
    wait_s: float = WAIT_S
    """A call waits for a place at most this long."""
    idle_s: float = IDLE_S
    """A session without a call is closed after this long."""


@dataclass(slots=True)
class PoolCounters:
    """Counters of a pool, for tests and debug output."""

    open: int = 0
    """Places taken now: sessions that are open, being opened or being closed."""
    peak: int = 0
    opened: int = 0
    waiting: int = 0
    """Calls that wait for a place now."""
    refused: int = 0
    """Calls that have waited in vain."""
    fetches: int = 0
    """Inventories that were asked for."""
    closed: Counter[CloseReason] = field(default_factory=Counter)


class TimerHandle(Protocol):
    """Something that will happen."""

    def cancel(self) -> None:
        """Cancel the timer."""


Arguments = TypeVarTuple("Arguments")


class Timers(Protocol):
    """Calls something later, as an event loop does."""

    def call_later(
        self, delay: float, callback: Callable[[*Arguments], object], /, *args: *Arguments
    ) -> TimerHandle:
        """Call once, `delay` seconds from now."""


class Places:
    """The places of a pool, and the queue of calls that wait for one."""

    def __init__(self, limits: PoolLimits, counters: PoolCounters, timers: Timers) -> None:
        self._limits = limits
        self._counters = counters
        self._timers = timers
        self._queue: deque[asyncio.Future[None]] = deque()
        self._closed = False

    @property
    def wanted(self) -> int:
        """Calls in the queue."""
        return len(self._queue)

    @property
    def is_free(self) -> bool:
        """Whether the next call gets a place at once."""
        return self._counters.open < self._limits.sessions and not self._queue

    async def take(self) -> None:
        """Wait for a place and take it. Cancelling gives up the wait, or the place.

        Raises:
            PeerError: -32603, none became free in time, or there are none any more.
        """
        if self._closed:
            raise _over()
        if self.is_free:
            self._give()
            return
        place = asyncio.get_running_loop().create_future()
        self._queue.append(place)
        self._counters.waiting += 1
        limit = self._timers.call_later(self._limits.wait_s, self._refuse, place)
        try:
            await place
        except asyncio.CancelledError:
            # It may have been given in the moment in which nobody wanted it any more.
            if place.done() and not place.cancelled() and place.exception() is None:
                self.give_back()
            raise
        finally:
            limit.cancel()
            self._counters.waiting -= 1
            if place in self._queue:
                self._queue.remove(place)

    def give_back(self) -> None:
        """Free a place, and give it to the call that has waited longest."""
        self._counters.open -= 1
        while self._queue and self._counters.open < self._limits.sessions:
            place = self._queue.popleft()
            if not place.done():
                self._give()
                place.set_result(None)

    def close(self) -> None:
        """Give no more places, and fail all waiting calls."""
        self._closed = True
        for place in self._queue:
            if not place.done():
                place.set_exception(_over())
        self._queue.clear()

    def _give(self) -> None:
        self._counters.open += 1
        self._counters.peak = max(self._counters.peak, self._counters.open)

    def _refuse(self, place: "asyncio.Future[None]") -> None:
        if not place.done():
            self._counters.refused += 1
            self._queue.remove(place)
            text = f"no session with the apps became free within {self._limits.wait_s:g} s"
            place.set_exception(PeerError(INTERNAL_ERROR, text))


def _over() -> PeerError:
    return PeerError(INTERNAL_ERROR, "the connection to the apps is closed")


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
        self.idle_timer: TimerHandle | None = None
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
    """The sessions of one account at the endpoint: a SessionPool for the routes."""

    def __init__(
        self,
        target: UpstreamTarget,
        limits: PoolLimits | None = None,
        *,
        open_session: Open = open_session,
        timers: Timers | None = None,
    ) -> None:
        """Prepare the sessions of an account; the first call opens one.

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
        """Start closing all sessions; `run` returns once they are closed."""
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
        held.idle_timer = self._timers.call_later(self._limits.idle_s, self._close, held, "idle")
        self._reclaim()

    def _reclaim(self, for_me: int = 0) -> None:
        """Close idle sessions, one for each call that waits for a place."""
        closing = sum(held.reason is not None for held in self._all)
        wanted = max(0, self._places.wanted + for_me - closing)
        for held in list(self._resting)[:wanted]:
            self._close(held, "reclaimed")
