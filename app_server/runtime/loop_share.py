"""Share of the event loop for streams, and for tasks that free many values. No I/O.

A read from a socket can hold hundreds of events or lines, and the next read may be ready at once: a
task that works them off without a pause, or a hundred of them in a row, keep everybody else
waiting.
Source: docs/wire.md, "Bounds".
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable

import anyio.lowlevel

SLICE_S = 0.0005
"""Seconds of each round of the event loop that all streams of one share may take together."""

PIECE = 256
"""Values that are freed at once, each with what it alone holds: less than 1 ms."""


class LoopShare:
    """One share of the event loop, which many tasks use by turns, first come, first served."""

    def __init__(
        self, slice_s: float = SLICE_S, now: Callable[[], float] = time.perf_counter
    ) -> None:
        """`slice_s` bounds a round of the event loop; one piece of work always fits."""
        self._slice_s = slice_s
        self._now = now
        self._until: float | None = None
        """Time at which the share of this round is used up; None before its first use."""
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def wait(self) -> None:
        """Wait until there is something left of the share; return at once if there is.

        To be called before each piece of work, which should take far less than the share.
        """
        if self._until is None:
            self._begin_round()
            return
        if self._now() < self._until:
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        await place
        # A scope of anyio cancels a task that waits. This one does so for a moment only: at the end
        # of a round, which comes before the scope looks, it may go on already.
        await anyio.lowlevel.checkpoint_if_cancelled()
        # Others ran since the round was begun.
        self._until = self._now() + self._slice_s

    def _begin_round(self) -> None:
        self._until = self._now() + self._slice_s
        asyncio.get_running_loop().call_soon(self._end_round)

    def _end_round(self) -> None:
        self._until = None
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                # Its task runs in the next round, before that is ended in turn.
                place.set_result(None)
                self._begin_round()
                return


async def free_in_pieces(values: list[object], piece: int = PIECE) -> None:
    """Empty a list that holds the last references of its values, with pauses.

    Without it 30,000 values would stop everybody for 10 ms.
    """
    while values:
        del values[-piece:]
        await anyio.lowlevel.checkpoint()
