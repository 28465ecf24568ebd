"""When threads are worked on for their signals, and how many are loaded at a time.

Source: docs/signals.md, "Failures, and what to do", "Bounds".
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import anyio

RETRY_S = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Until the next try for a thread that cannot be had now; the last one repeats."""

AT_ONCE = float("-inf")
"""A time that has come, whatever the clock says."""


class Schedule:
    """The next time of each thread that has one, in seconds of the event loop's clock."""

    def __init__(
        self,
        now_s: Callable[[], float] = anyio.current_time,
        retry_s: Sequence[float] = RETRY_S,
    ) -> None:
        """Retry after the seconds of `retry_s`, of which the last repeat."""
        self._now_s = now_s
        self._retry_s = retry_s
        self._times: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._changed = anyio.Event()

    def add(self, thread_id: str, at_s: float = AT_ONCE) -> None:
        """Schedule a thread for a time, or leave it at an earlier one; never waits."""
        self._times[thread_id] = min(at_s, self._times.get(thread_id, at_s))
        self._changed.set()

    def add_after(self, thread_id: str, delay_s: float) -> None:
        """Schedule a thread after a delay, or leave it at an earlier time; never waits."""
        self.add(thread_id, self._now_s() + max(delay_s, 0.0))

    def add_retry(self, thread_id: str) -> float:
        """Plan the next try for a thread that cannot be had now; returns how long it is until."""
        tries = self._failures[thread_id] = self._failures.get(thread_id, 0) + 1
        delay_s = self._retry_s[min(tries, len(self._retry_s)) - 1]
        self.add_after(thread_id, delay_s)
        return delay_s

    def note_success(self, thread_id: str) -> None:
        """Reset the backoff of a thread."""
        self._failures.pop(thread_id, None)

    async def due(self) -> set[str]:
        """Return the threads that are due, and plan them no more; waits until there are some."""
        while True:
            self._changed = anyio.Event()
            now_s = self._now_s()
            due = {thread_id for thread_id, at_s in self._times.items() if at_s <= now_s}
            if due:
                for thread_id in due:
                    del self._times[thread_id]
                return due
            next_s = min(self._times.values(), default=float("inf"))
            with anyio.move_on_after(next_s - now_s):
                await self._changed.wait()


MAX_LOADING = 64
"""Threads that are loaded at a time, however slowly."""

MAX_RECENT = 8
"""Threads whose loading began less than SLOW_S ago."""

SLOW_S = 2.0


class LoadingPlaces:
    """Lets threads in as long as there is room, in the order in which they come."""

    def __init__(self) -> None:
        self._began_s: dict[str, float] = {}
        self._first_in_line = anyio.Lock()
        self._left = anyio.Event()

    @asynccontextmanager
    async def place(self, thread_id: str) -> AsyncIterator[None]:
        """Wait for a place and hold it; a thread has one at a time."""
        async with self._first_in_line:
            while (wait_s := self._full_for_s()) > 0:
                self._left = anyio.Event()
                with anyio.move_on_after(wait_s):
                    await self._left.wait()
            self._began_s[thread_id] = anyio.current_time()
        try:
            yield
        finally:
            del self._began_s[thread_id]
            self._left.set()

    def _full_for_s(self) -> float:
        """Return the seconds until the next place is free; 0 when there is room."""
        if len(self._began_s) >= MAX_LOADING:
            return float("inf")
        # In their order: those that began first are slow first.
        recent = [began_s + SLOW_S - anyio.current_time() for began_s in self._began_s.values()]
        recent = [left_s for left_s in recent if left_s > 0]
        return 0.0 if len(recent) < MAX_RECENT else recent[-MAX_RECENT]
