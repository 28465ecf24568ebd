"""A bounded number of places, given in the order in which they were asked for.

Source: docs/apps.md, "Sessions with the endpoint".
"""

import asyncio
from collections import deque

from mcp_types import INTERNAL_ERROR

from app_server.apps.upstream.pool_limits import PoolCounters, PoolLimits, Timers
from app_server.mcp_wire.errors import PeerError


class Places:
    """Who has a place, and who waits for one."""

    def __init__(self, limits: PoolLimits, counters: PoolCounters, timers: Timers) -> None:
        self._limits = limits
        self._counters = counters
        self._timers = timers
        self._queue: deque[asyncio.Future[None]] = deque()
        self._closed = False

    @property
    def wanted(self) -> int:
        """How many calls wait."""
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
        """Free a place, for whoever has waited longest."""
        self._counters.open -= 1
        while self._queue and self._counters.open < self._limits.sessions:
            place = self._queue.popleft()
            if not place.done():
                self._give()
                place.set_result(None)

    def close(self) -> None:
        """Give no more places; whoever waits hears it."""
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
