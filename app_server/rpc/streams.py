"""The streams of all loaded threads, and what they take together."""

from app_server.rpc.stream import Position, StreamLimits, ThreadStream


class Streams:
    """One stream a loaded thread, by the thread's id."""

    def __init__(self, limits: StreamLimits) -> None:
        self.limits = limits
        """Of streams that are opened from now on."""
        self._streams: dict[str, ThreadStream] = {}

    def open(self, thread_id: str) -> None:
        """Begin a stream; it has an id that no stream had before."""
        self._streams[thread_id] = ThreadStream(self.limits)

    def close(self, thread_id: str) -> None:
        """End a stream; what comes after it has no number."""
        self._streams.pop(thread_id, None)

    def find(self, thread_id: str | None) -> ThreadStream | None:
        """Return the stream of a loaded thread; None for other threads."""
        return None if thread_id is None else self._streams.get(thread_id)

    def position(self, thread_id: str) -> Position | None:
        """Return where a thread's stream has come to; None for a thread that is not loaded."""
        stream = self._streams.get(thread_id)
        return None if stream is None else stream.position

    def forget(self, thread_id: str) -> int:
        """Keep nothing of what a thread was told; returns how many bytes that frees."""
        stream = self._streams.get(thread_id)
        return 0 if stream is None else stream.forget()

    @property
    def total_bytes(self) -> int:
        """Estimated bytes of all streams."""
        return sum(stream.size for stream in self._streams.values())

    @property
    def total_events(self) -> int:
        """How many events are kept."""
        return sum(stream.events for stream in self._streams.values())

    def size_of(self, thread_id: str) -> int:
        """Return the estimated bytes of one stream."""
        stream = self._streams.get(thread_id)
        return 0 if stream is None else stream.size
