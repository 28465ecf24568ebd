"""Server-sent events from chunks of bytes, without I/O.

httpx-sse does the same for whole lines, but bounds neither a line nor an event.
"""

from dataclasses import dataclass

MAX_RETRY_DIGITS = 9
"""A wait that is written with more of them, eleven days, is no wait that anybody meant."""


class EventTooLarge(Exception):
    """One event is larger than the bound."""


@dataclass(frozen=True, slots=True)
class SseEvent:
    """One event that has data."""

    name: bytes
    data: bytes


class EventParser:
    r"""Server-sent events from chunks that may split anywhere, also inside a line end.

    feed(b"data: {}\n\n") returns [SseEvent(name=b"message", data=b"{}")].
    Source: WHATWG HTML, 9.2.6.
    """

    last_id: bytes
    """The last event's id; empty without one. An id alone, without data, counts too."""
    retry_ms: int | None
    """Milliseconds to wait before reconnecting, from `retry`; None without one."""

    def __init__(self, limit_bytes: int) -> None:
        """Bound one event, its field names included, to `limit_bytes`."""
        self.last_id = b""
        self.retry_ms = None
        self._limit = limit_bytes
        self._buffer = bytearray()
        self._searched = 0
        self._pending_cr = False
        self._at_start = True

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Take more bytes and return the events that are complete now.

        Raises:
            EventTooLarge: the bound is passed; the parser is of no more use.
        """
        self._buffer += self._with_plain_line_ends(chunk)
        if self._buffer.find(b"\n\n", self._searched) < 0:
            blocks: list[bytes] = []
        else:
            # All at once: taking one off the front would move what is behind it each time.
            *blocks, rest = bytes(self._buffer).split(b"\n\n")
            self._buffer[:] = rest
        self._searched = max(0, len(self._buffer) - 1)
        if len(self._buffer) > self._limit or any(len(each) > self._limit for each in blocks):
            raise EventTooLarge
        return [event for event in map(self._parse_block, blocks) if event is not None]

    def _with_plain_line_ends(self, chunk: bytes) -> bytes:
        if self._at_start and chunk:
            self._at_start = False
            chunk = chunk.removeprefix(b"\xef\xbb\xbf")
        if not self._pending_cr and b"\r" not in chunk:
            return chunk
        if self._pending_cr:
            chunk = b"\r" + chunk
        self._pending_cr = chunk.endswith(b"\r")
        if self._pending_cr:
            chunk = chunk[:-1]
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _parse_block(self, block: bytes) -> SseEvent | None:
        name, data = b"message", []
        for line in block.split(b"\n"):
            field, _, value = line.partition(b":")
            value = value.removeprefix(b" ")
            if field == b"data":
                data.append(value)
            elif field == b"event":
                name = value
            elif field == b"id" and b"\0" not in value:
                self.last_id = value
            elif field == b"retry" and value.isdigit() and len(value) <= MAX_RETRY_DIGITS:
                self.retry_ms = int(value)
        return SseEvent(name, b"\n".join(data)) if data else None
