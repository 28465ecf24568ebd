"""How many threads are read or loaded for signals at a time. No I/O.

A thread may take as long to load as its MCP servers let it: after SLOW_S another one may begin.
Source: docs/signals.md, "Bounds".
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio

MAX_LOADING = 64
"""Threads that are loaded at a time, however slowly."""

MAX_RECENT = 8
"""Those of them that began less than SLOW_S ago."""

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
        """Return for how long nobody is let in unless somebody leaves; 0 when there is room."""
        if len(self._began_s) >= MAX_LOADING:
            return float("inf")
        # In their order: those that began first are slow first.
        recent = [began_s + SLOW_S - anyio.current_time() for began_s in self._began_s.values()]
        recent = [left_s for left_s in recent if left_s > 0]
        return 0.0 if len(recent) < MAX_RECENT else recent[-MAX_RECENT]
