"""The newest events of one thread, numbered, so that they can be sent again.

Knows: events and their order. Does not know: clients, threads, turns.
Source: docs/wire.md, "Replay".
"""

import secrets
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from app_server.rpc.hub.replay_format import ReplayDeltas, ReplayEntry
from app_server.rpc.outgoing import Message, Outgoing


@dataclass(frozen=True, slots=True)
class ReplayLimits:
    """Bounds of a thread's replay buffer; the newest entry is kept always."""

    max_events: int = 4096
    max_bytes: int = 1024 * 1024
    """An estimate: characters of messages, and what it takes to keep them."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a stream."""

    stream_id: str
    seq: int
    """The last event before it; 0 at the beginning."""


class ReplayBuffer:
    """The events of one loaded thread, from 1 on; the last of them are kept."""

    __slots__ = ("_entries", "_limits", "id", "last", "size", "touched")

    def __init__(self, limits: ReplayLimits) -> None:
        self._limits = limits
        self._entries: deque[ReplayEntry | ReplayDeltas] | None = None
        self.id = secrets.token_hex(8)
        """Random id of this stream, different at each load of the thread."""
        self.last = 0
        """The number of the newest event."""
        self.size = 0
        """Estimated bytes of what is kept."""
        self.touched = 0
        """Greater than that of streams that were quiet for longer."""

    @property
    def position(self) -> Position:
        """Position of the newest event in the stream."""
        return Position(self.id, self.last)

    @property
    def events(self) -> int:
        """Number of events in the buffer."""
        return self.last - self._entries[0].first + 1 if self._entries else 0

    def next_seq(self) -> int:
        """Take the number of the next event; it must be kept before there is another."""
        self.last += 1
        return self.last

    def keep(self, outgoing: Outgoing) -> None:
        """Remember the newest event, and forget old ones that are too much."""
        if self._entries is None:
            self._entries = deque()
        newest = self._entries[-1] if self._entries else None
        if isinstance(newest, ReplayDeltas) and newest.takes(outgoing):
            self.size += newest.add(outgoing)
        else:
            if isinstance(newest, ReplayDeltas):
                self.size -= newest.close()
            entry = ReplayDeltas(outgoing) if outgoing.is_delta else ReplayEntry(outgoing)
            self._entries.append(entry)
            self.size += entry.size
        limits = self._limits
        while (
            self.size > limits.max_bytes or self.last - self._entries[0].first >= limits.max_events
        ) and len(self._entries) > 1:
            self.size -= self._entries.popleft().size

    def can_go_on(self, position: Position) -> bool:
        """Whether the position is one of this stream, and everything after it is kept."""
        return (
            position.stream_id == self.id and self.last - self.events <= position.seq <= self.last
        )

    def since(self, after: int) -> Iterator[Message]:
        """Give what came after a number, in order; pieces of one text may be joined.

        Whatever is not kept any more is missing; ask `can_go_on` before.
        """
        for entry in self._entries or ():
            if after < entry.last:
                yield entry.since(after) if isinstance(entry, ReplayDeltas) else entry

    def forget(self) -> int:
        """Keep nothing of what was; returns how many bytes that frees."""
        freed, self.size, self._entries = self.size, 0, None
        return freed
