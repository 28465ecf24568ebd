"""Events kept for clients that were away, so that they can be sent again.

From top to bottom: the entries, as small as they can be; the newest events of one thread, numbered;
the buffers of all loaded threads, and what they take together. When they take more than their
share, those that were quiet for the longest time forget what they kept; the one that just grew is
the last to do so, and has a bound of its own. Does not know: clients, turns.
Source: docs/wire.md, "Replay"; docs/config.md, "Memory".
"""

import itertools
import secrets
from array import array
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from app_server.rpc.outbox import Delta, Form, Message, Outgoing
from protocol.contract.gate import has_stable_form
from protocol.jsonrpc.envelope import RepeatedNotifications

RUN = 64
"""Pieces of one text that are kept together, and leave together."""
ENTRY_BYTES = 160
"""Estimated bytes of an entry besides its texts."""
REPEATED_BYTES = 256
"""Estimated bytes of an event that other threads are sent too, were they sent it no more."""
PIECE_BYTES = 64
"""Estimated bytes of a piece of a run besides its text, until the run is full."""

_PLAIN: Form = (True, False, True)
_STABLE: Form = (False, False, True)


class ReplayEntry:
    """One event, rendered."""

    __slots__ = ("_stable", "_whole", "first", "method", "size")

    is_delta = False

    def __init__(self, outgoing: Outgoing) -> None:
        assert outgoing.seq is not None
        self.method = outgoing.method
        self.first = outgoing.seq
        self._whole = outgoing.text(_PLAIN)
        stable = outgoing.text(_STABLE) if has_stable_form(type(outgoing.event)) else self._whole
        self._stable = None if stable == self._whole else stable
        self.size = ENTRY_BYTES + len(self._whole) + len(self._stable or "")

    @property
    def last(self) -> int:
        """The number of the event."""
        return self.first

    def text(self, form: Form) -> str:
        """Give the message in a form."""
        experimental, jsonrpc, numbered = form
        text = self._whole if experimental or self._stable is None else self._stable
        if not numbered:
            text = text.removesuffix(f',"seq":{self.first}}}') + "}"
        return f'{{"jsonrpc":"2.0",{text[1:]}' if jsonrpc else text

    def delta(self, form: Form) -> Delta | None:
        """Give nothing: this is a whole."""
        return None


class ReplayDeltas:
    """Deltas of one text that follow each other, kept together."""

    __slots__ = ("_ends", "_newest", "_pieces", "first", "key", "size")

    def __init__(self, outgoing: Outgoing) -> None:
        assert outgoing.seq is not None
        self.first = outgoing.seq
        self.key: Hashable = outgoing.key
        self._newest = outgoing
        self._pieces: list[str] = []
        self._ends: array[int] | None = None
        self.size = ENTRY_BYTES
        self.add(outgoing)

    @property
    def last(self) -> int:
        """The number of the newest piece."""
        return self.first + len(self._pieces if self._ends is None else self._ends) - 1

    def takes(self, outgoing: Outgoing) -> bool:
        """Whether this is one more piece of the text, and there is room."""
        return len(self._pieces) < RUN and outgoing.is_delta and outgoing.key == self.key

    def add(self, outgoing: Outgoing) -> int:
        """Add a piece; returns by how many bytes the run grew."""
        self._pieces.append(outgoing.piece)
        self._newest = outgoing
        grown = PIECE_BYTES + len(outgoing.piece)
        self.size += grown
        return grown

    def close(self) -> int:
        """Keep the text as one, as nothing will be added; returns how many bytes that frees."""
        ends, length = array("L"), 0
        for piece in self._pieces:
            length += len(piece)
            ends.append(length)
        self._ends, self._pieces = ends, ["".join(self._pieces)]
        freed = len(ends) * (PIECE_BYTES - ends.itemsize)
        self.size -= freed
        return freed

    def since(self, after: int) -> Outgoing:
        """Give what came after a number, as one event; some of the run must."""
        skipped = max(after + 1 - self.first, 0)
        if self._ends is None:
            text = "".join(self._pieces[skipped:])
        else:
            text = self._pieces[0][self._ends[skipped - 1] if skipped else 0 :]
        newest = self._newest
        event = newest.event.model_copy(update={"delta": text})
        return Outgoing(newest.method, event, newest.at_ms, self.last)


class ReplayRepeated:
    """Events that other threads are sent too, rendered when they are sent, and kept together."""

    __slots__ = ("_at_ms", "_thread_id", "events", "first", "last", "size")

    is_delta = False

    def __init__(
        self, events: RepeatedNotifications, thread_id: str, at_ms: int, seqs: range | None
    ) -> None:
        """`seqs` None is for what stands in no stream."""
        self.events = events
        self._thread_id = thread_id
        self._at_ms = at_ms
        self.first, self.last = (0, -1) if seqs is None else (seqs[0], seqs[-1])
        self.size = ENTRY_BYTES + REPEATED_BYTES * len(events)

    def texts(self, form: Form) -> list[str]:
        """Render all of them."""
        experimental, jsonrpc, numbered = form
        seqs = range(self.first, self.last + 1)
        return self.events.render(
            self._thread_id,
            self._at_ms,
            jsonrpc=jsonrpc,
            experimental=experimental,
            seqs=seqs if numbered and seqs else None,
        )

    def since(self, after: int) -> Iterator["RepeatedMessage"]:
        """Give what came after a number."""
        for seq in range(max(after + 1, self.first), self.last + 1):
            yield RepeatedMessage(self, seq - self.first)


class RepeatedMessage:
    """One of the events that are kept together."""

    __slots__ = ("_index", "_kept")

    is_delta = False

    def __init__(self, kept: ReplayRepeated, index: int) -> None:
        self._kept = kept
        self._index = index

    @property
    def method(self) -> str:
        """Of the notification."""
        return self._kept.events.method

    def text(self, form: Form) -> str:
        """Render the whole message."""
        return self._kept.texts(form)[self._index]

    def delta(self, form: Form) -> Delta | None:
        """Give nothing: this is a whole."""
        return None


Entry: TypeAlias = ReplayEntry | ReplayDeltas | ReplayRepeated


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
        self._entries: deque[Entry] | None = None
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

    def next_seqs(self, count: int) -> range:
        """Take the numbers of the next events; to be kept before the event loop's next turn."""
        first, self.last = self.last + 1, self.last + count
        return range(first, self.last + 1)

    def keep(self, run: Iterable[Outgoing | ReplayRepeated]) -> None:
        """Remember the newest events, and forget old ones that are too much."""
        if self._entries is None:
            self._entries = deque()
        entries = self._entries
        newest = entries[-1] if entries else None
        for outgoing in run:
            if isinstance(newest, ReplayDeltas):
                if isinstance(outgoing, Outgoing) and newest.takes(outgoing):
                    self.size += newest.add(outgoing)
                    continue
                self.size -= newest.close()
            if isinstance(outgoing, ReplayRepeated):
                newest = outgoing
            else:
                newest = ReplayDeltas(outgoing) if outgoing.is_delta else ReplayEntry(outgoing)
            entries.append(newest)
            self.size += newest.size
        limits = self._limits
        while (
            self.size > limits.max_bytes or self.last - entries[0].first >= limits.max_events
        ) and len(entries) > 1:
            self.size -= entries.popleft().size

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
            if isinstance(entry, ReplayRepeated):
                yield from entry.since(after)
            elif after < entry.last:
                yield entry.since(after) if isinstance(entry, ReplayDeltas) else entry

    def forget(self) -> int:
        """Keep nothing of what was; returns how many bytes that frees."""
        freed, self.size, self._entries = self.size, 0, None
        return freed


UNLIMITED = 1 << 62


class ReplayBuffers:
    """One stream a loaded thread, by the thread's id."""

    def __init__(self, limits: ReplayLimits) -> None:
        self.limits = limits
        """Of streams that are opened from now on."""
        self.share = UNLIMITED
        """Estimated bytes that all streams together may keep."""
        self.total_bytes = 0
        """Estimated bytes that they keep."""
        self._streams: dict[str, ReplayBuffer] = {}
        self._ticks = itertools.count(1)

    def open(self, thread_id: str) -> None:
        """Begin a stream; it has an id that no stream had before."""
        self.close(thread_id)
        self._streams[thread_id] = ReplayBuffer(self.limits)

    def close(self, thread_id: str) -> None:
        """End a stream; what comes after it has no number."""
        stream = self._streams.pop(thread_id, None)
        if stream is not None:
            self.total_bytes -= stream.size

    def find(self, thread_id: str | None) -> ReplayBuffer | None:
        """Return the stream of a loaded thread; None for other threads."""
        return None if thread_id is None else self._streams.get(thread_id)

    def position(self, thread_id: str) -> Position | None:
        """Return where a thread's stream has come to; None for a thread that is not loaded."""
        stream = self._streams.get(thread_id)
        return None if stream is None else stream.position

    def keep(self, stream: ReplayBuffer, run: Iterable[Outgoing | ReplayRepeated]) -> None:
        """Remember the newest events of a stream."""
        before = stream.size
        stream.keep(run)
        stream.touched = next(self._ticks)
        self.total_bytes += stream.size - before
        if self.total_bytes > self.share:
            self.shed()

    def shed(self) -> None:
        """Forget until a quarter of the share is free, the longest quiet stream first."""
        target = self.share * 3 // 4
        for stream in sorted(self._streams.values(), key=lambda stream: stream.touched)[:-1]:
            if self.total_bytes <= target:
                return
            self.total_bytes -= stream.forget()

    def fills(self) -> list[tuple[int, int]]:
        """Return events and estimated bytes of each stream."""
        return [(stream.events, stream.size) for stream in self._streams.values()]

    @property
    def total_events(self) -> int:
        """Number of events in all buffers."""
        return sum(stream.events for stream in self._streams.values())
