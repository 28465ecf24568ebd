"""The places of a pool of sessions: how many, who has one, who waits; first come, first served.

Source: docs/apps.md, "Sessions with the endpoint".
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from app_server.mcp_wire.errors import PeerError
from protocol.jsonrpc.errors import INTERNAL_ERROR

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


class Timer(Protocol):
    """Something that will happen."""

    def cancel(self) -> None:
        """Let it not happen."""


class Timers(Protocol):
    """Calls something later, as an event loop does."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Timer:
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
        limit = self._timers.call_later(self._limits.wait_s, lambda: self._refuse(place))
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
