"""What waits to be sent to one client, bounded.

A client that falls behind first gets the deltas of one item merged. One that falls behind further is
given up: nothing more is taken, and its connection closes with 1013.
Source: docs/wire.md, "Bounds".
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import anyio


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    """How much may wait for one client."""

    merge_above: int = 256
    """Messages; beyond it deltas of one item are merged and the client's requests are not read."""
    max_messages: int = 8192
    max_chars: int = 16 * 1024 * 1024
    """Characters of all waiting messages together."""


@dataclass(slots=True)
class Delta:
    """A piece of text that may be sent together with the piece before it."""

    key: tuple[object, ...]
    """Equal for pieces of one text."""
    pieces: list[str]
    render: Callable[[str], str]
    """From the joined text to the message."""


class Outbox:
    """First in, first out; adding never waits. One task takes.

    `overflowed` turns true once, when the client let too much pile up; from then on nothing is added.
    """

    def __init__(self, limits: OutboxLimits) -> None:
        self._limits = limits
        self._waiting: deque[str | Delta] = deque()
        self._chars = 0
        self._closed = False
        self.overflowed = False
        self._added = anyio.Event()
        self._taken = anyio.Event()

    def add(self, text: str, delta: Delta | None = None) -> None:
        """Queue one message; `delta` is the same message in mergeable form."""
        if self.overflowed or self._closed:
            return
        size = len(text)
        if delta is None or len(self._waiting) < self._limits.merge_above:
            self._waiting.append(text)
        else:
            size = self._merge(delta)
        self._chars += size
        if self._chars > self._limits.max_chars or len(self._waiting) > self._limits.max_messages:
            self.overflowed = True
        self._added.set()

    def _merge(self, delta: Delta) -> int:
        last = self._waiting[-1]
        if isinstance(last, Delta) and last.key == delta.key:
            last.pieces.extend(delta.pieces)
        else:
            self._waiting.append(delta)
        return sum(map(len, delta.pieces))

    def close(self) -> None:
        """Take no more; what waits is still given out."""
        self._closed = True
        self._added.set()

    def abandon(self) -> None:
        """Take no more and forget what waits: nobody will take it."""
        self._closed = True
        self._waiting.clear()
        self._added.set()
        self._taken.set()

    async def take(self) -> str:
        """Wait for the oldest message and return it. Cancelling loses nothing.

        Raises:
            anyio.EndOfStream: closed, and nothing waits.
        """
        while not self._waiting:
            if self._closed:
                raise anyio.EndOfStream
            self._added = anyio.Event()
            await self._added.wait()
        entry = self._waiting.popleft()
        self._taken.set()
        if isinstance(entry, str):
            self._chars -= len(entry)
            return entry
        text = "".join(entry.pieces)
        self._chars -= len(text)
        return entry.render(text)

    async def wait_for_room(self) -> None:
        """Wait until no more than `merge_above` messages wait, or it does not matter any more."""
        while len(self._waiting) > self._limits.merge_above:
            self._taken = anyio.Event()
            await self._taken.wait()
