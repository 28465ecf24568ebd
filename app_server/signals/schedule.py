"""When the signals of which thread are worked on. No I/O.

Source: docs/signals.md, "Failures, and what to do".
"""

from collections.abc import Callable

import anyio

RETRY_S = (1.0, 2.0, 5.0, 15.0, 60.0)
"""Until the next try for a thread that cannot be had now; the last one repeats."""

AT_ONCE = float("-inf")
"""A time that has come, whatever the clock says."""


class Schedule:
    """The next time of each thread that has one, in seconds of the event loop's clock."""

    def __init__(self, now_s: Callable[[], float] = anyio.current_time) -> None:
        self._now_s = now_s
        self._times: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._changed = anyio.Event()

    def add(self, thread_id: str, at_s: float = AT_ONCE) -> None:
        """Let a thread be due at a time, or earlier if that was planned; never waits."""
        self._times[thread_id] = min(at_s, self._times.get(thread_id, at_s))
        self._changed.set()

    def add_after(self, thread_id: str, delay_s: float) -> None:
        """Let a thread be due after a while, or earlier if that was planned; never waits."""
        self.add(thread_id, self._now_s() + max(delay_s, 0.0))

    def add_retry(self, thread_id: str) -> float:
        """Plan the next try for a thread that cannot be had now; returns how long it is until."""
        tries = self._failures[thread_id] = self._failures.get(thread_id, 0) + 1
        delay_s = RETRY_S[min(tries, len(RETRY_S)) - 1]
        self.add_after(thread_id, delay_s)
        return delay_s

    def note_success(self, thread_id: str) -> None:
        """Let the next failure of a thread count as its first."""
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
