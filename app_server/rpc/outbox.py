"""Bounded queue of messages to one client.

A client that falls behind first gets the deltas of one item merged. One that falls behind further
is given up: nothing more is taken, and its connection closes with 1013.
Source: docs/wire.md, "Bounds".
"""

import asyncio
from collections import deque
from dataclasses import dataclass

import anyio

from app_server.rpc.limits import OutboxLimits
from app_server.rpc.outgoing import Delta


@dataclass(slots=True)
class _Joined:
    """Pieces of one text that wait together."""

    pieces: list[str]
    newest: Delta

    def __len__(self) -> int:
        return sum(map(len, self.pieces))

    def render(self) -> str:
        return self.newest.render("".join(self.pieces))


@dataclass(slots=True)
class _Large:
    """An answer that has what the client has asked for by its size."""

    text: str

    def __len__(self) -> int:
        return len(self.text)


class Outbox:
    """First in, first out; adding never waits. One message is on its way at a time.

    Whoever holds the right to send sends: the task that takes, or a task that found nothing waiting
    and may send its own message without a detour (`claim`). Both `release` it afterwards.
    `overflowed` turns true once, when the client let too much pile up; from then on nothing is
    added.
    """

    def __init__(self, limits: OutboxLimits) -> None:
        self._limits = limits
        self._waiting: deque[str | _Joined | _Large] = deque()
        self.chars = 0
        """Of all that waits, without large answers."""
        self._large_chars = 0
        self._closed = False
        self._claimed = False
        self.overflowed = False
        # asyncio's events can be used again; a new one of anyio for each wait takes 1.5 µs.
        self._added = asyncio.Event()
        self._taken = asyncio.Event()

    @property
    def messages(self) -> int:
        """Number of messages that wait."""
        return len(self._waiting)

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is taken."""
        return self._closed

    @property
    def is_full(self) -> bool:
        """Whether deltas are merged from now on."""
        return len(self._waiting) >= self._limits.merge_above

    def add(self, text: str, delta: Delta | None = None) -> None:
        """Queue one message; `delta` is the same message in mergeable form."""
        if self.overflowed or self._closed:
            return
        if delta is None or not self.is_full:
            self._waiting.append(text)
            self.chars += len(text)
        else:
            self._merge(delta)
            self.chars += len(delta.piece)
        if self.chars > self._limits.max_chars or len(self._waiting) > self._limits.max_messages:
            self.overflowed = True
        self._added.set()

    async def add_large(self, text: str) -> None:
        """Queue an answer whose size the client has asked for; waits for room among its kind."""
        while self._large_chars and self._large_chars + len(text) > self._limits.max_large_chars:
            await self._next_taken()
        if self.overflowed or self._closed:
            return
        self._waiting.append(_Large(text))
        self._large_chars += len(text)
        self._added.set()

    def claim(self) -> bool:
        """Take the right to send if nothing waits and nothing is on its way."""
        if self._claimed or self._waiting or self._closed or self.overflowed:
            return False
        self._claimed = True
        return True

    def release(self) -> None:
        """Release the right to send; wake `take` if messages wait or the outbox is closed."""
        self._claimed = False
        if self._waiting or self._closed:
            self._added.set()

    def _merge(self, delta: Delta) -> None:
        last = self._waiting[-1]
        if isinstance(last, _Joined) and last.newest.key == delta.key:
            last.pieces.append(delta.piece)
            last.newest = delta
        else:
            self._waiting.append(_Joined([delta.piece], delta))

    def give_up(self) -> None:
        """Take no more, as the client has missed what can no longer be sent."""
        self.overflowed = True
        self._added.set()

    def close(self) -> None:
        """Take no more; what waits is still given out."""
        self._closed = True
        self._added.set()

    def abandon(self) -> None:
        """Close the outbox and drop the messages that wait."""
        self._closed = True
        self._waiting.clear()
        self.chars = self._large_chars = 0
        self._added.set()
        self._taken.set()

    async def take(self) -> str:
        """Wait for the oldest message and the right to send it. Cancelling loses nothing.

        Raises:
            anyio.EndOfStream: closed, and nothing waits.
        """
        while self._claimed or not self._waiting:
            if self._closed and not self._claimed:
                raise anyio.EndOfStream
            self._added.clear()
            await self._added.wait()
        self._claimed = True
        self._taken.set()
        return self._pop()

    def take_waiting(self, max_chars: int) -> list[str]:
        """Take more messages that wait already; for who has taken one and has not released it.

        They have at most `max_chars` characters together, so that little is on its way at a time.
        """
        texts: list[str] = []
        left = max_chars
        while self._waiting and (left := left - len(self._waiting[0])) >= 0:
            texts.append(self._pop())
        return texts

    def _pop(self) -> str:
        entry = self._waiting.popleft()
        if isinstance(entry, _Large):
            self._large_chars -= len(entry)
            return entry.text
        self.chars -= len(entry)
        return entry if isinstance(entry, str) else entry.render()

    @property
    def has_no_room(self) -> bool:
        """Whether more than `merge_above` messages wait."""
        return len(self._waiting) > self._limits.merge_above

    async def wait_for_room(self) -> None:
        """Wait until there is room, or it does not matter any more."""
        while self.has_no_room:
            await self._next_taken()

    async def _next_taken(self) -> None:
        self._taken.clear()
        await self._taken.wait()
