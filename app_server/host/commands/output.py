"""The output of a command: its head and its tail, kept within a bound, and how it is read.

Pipes and terminals are read without blocking, and no faster than a bound. A command that prints
without end is made to wait: what it prints would be thrown away here, at the cost of everybody
else.
"""

import asyncio
import errno
import logging
import os
import sys
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, TypeAlias

logger = logging.getLogger(__name__)

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
        """Append a chunk; it is copied where it is kept."""
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
        """Return head and tail, without a mark for the cut between them."""
        return bytes(self._head) + self._last()

    def text(
        self,
        limit_bytes: int | None = None,
        in_words: Callable[[int], str] = lambda count: f"{count} bytes",
    ) -> str:
        """Return the kept output as text; above `limit_bytes` its beginning and end.

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
        """Return a shorter copy, without an incomplete last character.

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


READ_BYTES = 256 * 1024
"""Taken at once; one buffer of this size serves all commands of a thread of execution."""

DISCARD_BYTES = 1024 * 1024
"""Thrown away at once, at most."""

PAUSE_S = 0.02
"""Between reads of a stream that is too fast."""

GATHER_AFTER_BYTES = 1024 * 1024
"""Of a stream, before small pieces are gathered."""

SMALL_BYTES = 4096
"""Bytes below which a read is small: programs that buffer their output write as many at once."""

MAX_DRAINED_READS = 64
"""Reads after the end of a command: a pipe holds at most 1 MiB."""

Stream: TypeAlias = Literal["stdout", "stderr"]
OnOutput: TypeAlias = Callable[[Stream, bytes], None]
"""Takes what was printed; never waits. Not called any more once the command has finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadRates:
    """How fast one stream is read."""

    burst_bytes: int = 128 * 1024 * 1024
    """Read as fast as they come."""
    bytes_per_s: int = 64 * 1024 * 1024
    """After the burst."""
    gather_s: float = 0.001
    """Between reads of what comes in small pieces, from GATHER_AFTER_BYTES on: a read of each costs
    more."""


RATES = ReadRates()

_buffer = bytearray(READ_BYTES)
_view = memoryview(_buffer)


class OutputReader:
    """Reads one descriptor, which it owns, until its end."""

    def __init__(
        self,
        fd: int,
        stream: Stream,
        on_output: OnOutput,
        *,
        is_terminal: bool = False,
        rates: ReadRates = RATES,
    ) -> None:
        self.ended = asyncio.Event()
        """Nothing more comes."""
        self.is_complete = False
        """Whether it was read to EOF: no process holds the other end any more."""
        self._fd = fd
        self._stream: Stream = stream
        self._on_output = on_output
        self._is_terminal = is_terminal
        self._loop = asyncio.get_running_loop()
        self._rates = rates
        self._credit = rates.burst_bytes
        self._total = 0
        self._credited_s = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._is_paused = False
        self._is_discarded = False
        self._null: int | None = None
        """Descriptor of /dev/null, to which output is spliced to discard it; None: it is read."""
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._read)

    def pause(self) -> None:
        """Pause reading until `resume`, but for `drain`; a full pipe blocks the program."""
        if not self._is_paused:
            self._is_paused = True
            if self._timer is None and not self.ended.is_set():
                self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        """Resume reading after a pause."""
        if self._is_paused:
            self._is_paused = False
            if self._timer is None and not self.ended.is_set():
                self._loop.add_reader(self._fd, self._read)

    def discard(self) -> None:
        """Stop handing over output; idempotent."""
        if self._is_discarded or self.ended.is_set():
            return
        self._is_discarded = True
        if sys.platform == "linux" and not self._is_terminal:
            with suppress(OSError):
                self._null = os.open(os.devnull, os.O_WRONLY)

    def drain(self) -> None:
        """Read all output that is in the pipe now, and close without waiting for EOF."""
        for _ in range(MAX_DRAINED_READS):
            if self.ended.is_set() or not self._read_once():
                break
        self.close()

    def close(self) -> None:
        """Read no more; closing twice is harmless."""
        if self.ended.is_set():
            return
        self.ended.set()
        if self._timer is not None:
            self._timer.cancel()
        self._loop.remove_reader(self._fd)
        self._close_null()
        if not self._is_terminal:
            os.close(self._fd)

    def _read(self) -> None:
        count = self._read_once()
        if self.ended.is_set():
            return
        pause_s = 0.0
        if self._total > GATHER_AFTER_BYTES and count < SMALL_BYTES:
            pause_s = self._rates.gather_s
        if self._credit < 0:
            self._refill()
            pause_s = PAUSE_S if self._credit < 0 else pause_s
        if pause_s and not self._is_paused:
            self._loop.remove_reader(self._fd)
            self._timer = self._loop.call_later(pause_s, self._read_again)

    def _refill(self) -> None:
        now = self._loop.time()
        self._credit += int((now - self._credited_s) * self._rates.bytes_per_s)
        self._credit = min(self._credit, self._rates.burst_bytes)
        self._credited_s = now

    def _read_again(self) -> None:
        self._refill()
        if self._credit < 0:
            self._timer = self._loop.call_later(PAUSE_S, self._read_again)
            return
        self._timer = None
        if not self._is_paused:
            self._loop.add_reader(self._fd, self._read)

    def _read_once(self) -> int:
        """Read once without blocking; 0 at EOF and for an empty pipe."""
        try:
            count = self._read_or_discard()
        except (BlockingIOError, InterruptedError):
            return 0
        except OSError as exc:
            # A terminal whose last process has gone answers EIO. After any other failure nothing
            # more comes either, and the loop would ask again and again.
            if exc.errno != errno.EIO:
                logger.warning("the output of a command cannot be read: %s", exc)
            count = 0
        if not count:
            self.is_complete = True
            self.close()
            return 0
        self._credit -= count
        self._total += count
        if not self._is_discarded:
            self._on_output(self._stream, bytes(_view[:count]))
        return count

    def _read_or_discard(self) -> int:
        if sys.platform == "linux" and self._null is not None:
            try:
                return os.splice(self._fd, self._null, DISCARD_BYTES)
            except BlockingIOError:
                raise
            except OSError:
                # Not every kernel has it for pipes and this device.
                self._close_null()
        return os.readv(self._fd, (_buffer,))

    def _close_null(self) -> None:
        if self._null is not None:
            os.close(self._null)
            self._null = None
