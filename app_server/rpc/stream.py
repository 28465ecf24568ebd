"""What the clients of one thread were told lately, numbered, so that it can be told again.

Knows: events and their order. Does not know: clients, threads, turns.
Source: docs/wire.md, "Replay".
"""

import secrets
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from app_server.rpc.outgoing import Outgoing, with_text

RUN = 64
"""Pieces of one text that are kept as one entry, and leave together."""
PIECE_BYTES = 64
"""What a piece costs besides its characters."""


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """How much of a thread's stream is kept; the newest entry always is."""

    max_events: int = 4096
    max_bytes: int = 1024 * 1024
    """An estimate: characters of messages, and what it takes to keep them."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a stream."""

    stream_id: str
    seq: int
    """The last event before it; 0 at the beginning."""


class _Entry:
    """An event, or a run of pieces of one text."""

    __slots__ = ("first", "outgoing", "pieces", "size")

    def __init__(self, outgoing: Outgoing, size: int) -> None:
        assert outgoing.seq is not None
        self.first = outgoing.seq
        self.outgoing = outgoing
        """The last one of a run."""
        self.pieces = [outgoing.piece] if outgoing.is_delta else None
        self.size = size

    @property
    def last(self) -> int:
        """The number of the last event in it."""
        return self.first + (len(self.pieces) if self.pieces else 1) - 1

    def takes(self, outgoing: Outgoing) -> bool:
        """Whether this is one more piece of the same text."""
        return (
            self.pieces is not None
            and len(self.pieces) < RUN
            and outgoing.is_delta
            and outgoing.key == self.outgoing.key
        )

    def since(self, after: int) -> Outgoing:
        """Give what came after a number, as one event; some of the entry must."""
        newest = self.outgoing
        event = newest.event
        if self.pieces is not None:
            event = with_text(event, "".join(self.pieces[max(after + 1 - self.first, 0) :]))
        return Outgoing(newest.method, event, newest.at_ms, self.last)


class ThreadStream:
    """The events of one loaded thread, from 1 on; the last of them are kept."""

    __slots__ = ("_entries", "_limits", "id", "last", "size")

    def __init__(self, limits: StreamLimits) -> None:
        self._limits = limits
        self._entries: deque[_Entry] | None = None
        self.id = secrets.token_hex(8)
        """Tells this stream from those of other loads of the thread."""
        self.last = 0
        """The number of the newest event."""
        self.size = 0
        """Estimated bytes of what is kept."""

    @property
    def position(self) -> Position:
        """Where the stream has come to."""
        return Position(self.id, self.last)

    @property
    def events(self) -> int:
        """How many events are kept."""
        return self.last - self._entries[0].first + 1 if self._entries else 0

    def next_seq(self) -> int:
        """Take the number of the next event; it must be kept before there is another."""
        self.last += 1
        return self.last

    def keep(self, outgoing: Outgoing, size: int) -> None:
        """Remember the newest event; `size` are the characters of its message."""
        if self._entries is None:
            self._entries = deque()
        newest = self._entries[-1] if self._entries else None
        if newest is not None and newest.takes(outgoing):
            assert newest.pieces is not None
            newest.pieces.append(outgoing.piece)
            newest.outgoing = outgoing
            grown = len(outgoing.piece) + PIECE_BYTES
            newest.size += grown
        else:
            grown = size + PIECE_BYTES
            self._entries.append(_Entry(outgoing, grown))
        self.size += grown
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

    def since(self, after: int) -> Iterator[Outgoing]:
        """Give what came after a number, in order; pieces of one text may be joined.

        Whatever is not kept any more is missing; ask `can_go_on` before.
        """
        for entry in self._entries or ():
            if after < entry.last:
                yield entry.since(after)

    def forget(self) -> int:
        """Keep nothing of what was; returns how many bytes that frees."""
        freed, self.size, self._entries = self.size, 0, None
        return freed
