"""Estimated memory of the histories of threads, counted incrementally."""

from collections.abc import Iterable

import anyio.lowlevel

from app_server.threads.log.state.thread import ThreadState
from protocol.model import Json

STEP = 500
"""Items that are looked at before others get their turn."""
VALUE_BYTES = 64
"""Estimated bytes of a JSON value besides its text."""
COPIES = 2
"""Copies of each text: history of the model, and items of clients."""


class HistorySizes:
    """Estimated bytes of the histories of threads; what was counted is remembered."""

    def __init__(self) -> None:
        self._counted: dict[str, tuple[int, int, int]] = {}
        """By thread: which list, how many of its items, their bytes."""

    async def measure(self, states: Iterable[ThreadState]) -> int:
        """Return the bytes of all given threads; the others are forgotten.

        Lists only grow; one that is replaced or cut is noticed by its identity and length.
        """
        before, self._counted = self._counted, {}
        for state in states:
            history = state.history
            identity, count, size = before.get(state.id, (0, 0, 0))
            if identity != id(history) or count > len(history):
                count, size = 0, 0
            while count < len(history):
                step = history[count : count + STEP]
                size += sum(map(size_of, step))
                count += len(step)
                await anyio.lowlevel.checkpoint()
            self._counted[state.id] = id(history), count, size
        return COPIES * sum(size for _, _, size in self._counted.values())


def size_of(value: Json) -> int:
    """Estimate the bytes of a JSON value."""
    total = 0
    left = [value]
    while left:
        part = left.pop()
        total += VALUE_BYTES
        if isinstance(part, str):
            total += len(part)
        elif isinstance(part, dict):
            left.extend(part.values())
        elif isinstance(part, list):
            left.extend(part)
    return total
