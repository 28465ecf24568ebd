"""The streams of all loaded threads, and what they take together.

When they take more than their share, those that were quiet for the longest time forget what they
kept; the one that just grew is the last to do so, and has a bound of its own.
Source: docs/config.md, "Memory".
"""

import itertools

from app_server.rpc.hub.replay_buffer import Position, ReplayBuffer, ReplayLimits
from app_server.rpc.outgoing import Outgoing

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

    def keep(self, stream: ReplayBuffer, outgoing: Outgoing) -> None:
        """Remember the newest event of a stream."""
        before = stream.size
        stream.keep(outgoing)
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
