"""The head and the tail of a command's output, kept within a bound. No I/O."""

from collections import deque
from collections.abc import Callable

MAX_KEPT_BYTES = 1024 * 1024
"""Of one command: half of it from the beginning, half from the end."""


class KeptOutput:
    """The first and the last bytes of a stream, and how many were lost in between."""

    __slots__ = ("_head", "_head_limit", "_tail", "_tail_bytes", "_tail_limit", "total")

    def __init__(self, limit_bytes: int = MAX_KEPT_BYTES) -> None:
        self._head = bytearray()
        self._head_limit = limit_bytes - limit_bytes // 2
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self._tail_limit = limit_bytes // 2
        self.total = 0
        """Bytes that came."""

    def add(self, data: bytes) -> None:
        """Take what came; it is copied where it is kept."""
        self.total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if not data or not self._tail_limit:
            return
        data = bytes(data[-self._tail_limit :])
        self._tail.append(data)
        self._tail_bytes += len(data)
        while self._tail_bytes - len(self._tail[0]) >= self._tail_limit:
            self._tail_bytes -= len(self._tail.popleft())

    @property
    def lost_bytes(self) -> int:
        """Bytes between head and tail that are not kept."""
        return self.total - len(self._head) - min(self._tail_bytes, self._tail_limit)

    def all(self) -> bytes:
        """Return head and tail with nothing in between to show what was lost."""
        return bytes(self._head) + self._last()

    def text(
        self,
        limit_bytes: int | None = None,
        in_words: Callable[[int], str] = lambda count: f"{count} bytes",
    ) -> str:
        """Return what was kept as text, of more than `limit_bytes` the beginning and the end.

        A line says how much is missing in between, if anything is: `in_words`, given its bytes.
        """
        whole = self.all()
        if not self.lost_bytes and (limit_bytes is None or self.total <= limit_bytes):
            return whole.decode(errors="replace")
        head, tail = (bytes(self._head), self._last()) if self.lost_bytes else (whole, whole)
        if limit_bytes is not None:
            half = limit_bytes // 2
            head, tail = head[: limit_bytes - half], tail[-half:] if half else b""
        # A character that the cut went through is not shown by halves.
        head, tail = without_split_end(head), without_split_begin(tail)
        lost = self.total - len(head) - len(tail)
        begin, end = head.decode(errors="replace"), tail.decode(errors="replace")
        return f"{begin}\n[... {in_words(lost)} left out ...]\n{end}"

    def shortened(self, limit_bytes: int) -> "KeptOutput":
        """Return less of it, and nothing of a character that does not end yet.

        `limit_bytes` is below the bound of this one.
        """
        short = KeptOutput(limit_bytes)
        short.add(without_split_end(self.all()))
        short.total += self.lost_bytes
        return short

    def _last(self) -> bytes:
        return b"".join(self._tail)[-self._tail_limit :] if self._tail else b""


def without_split_end(data: bytes) -> bytes:
    """Leave out the begin of a character of UTF-8 that does not end here."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            needed = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if needed > back else data
        if byte < 0x80:
            return data
    return data


def without_split_begin(data: bytes) -> bytes:
    """Leave out the end of a character of UTF-8 that does not begin here."""
    count = 0
    while count < min(3, len(data)) and 0x80 <= data[count] < 0xC0:
        count += 1
    return data[count:]
