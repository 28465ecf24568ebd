"""The lines of a log without their content: where each one is, and of which type.

Everything here blocks. A log of any size is read in bounded memory: the longest line, and no more.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from protocol.rollout import parse_record

_PREFIX = re.compile(rb'\{"v":\d+,"atMs":(-?\d{1,18}),"type":"(\w+)"')


class LogLine(NamedTuple):
    """One whole line."""

    offset: int
    """Bytes before it."""
    content: bytes
    """With its line end."""
    type: str
    """Of its record; empty when nobody can read it."""
    at_ms: int

    @property
    def end(self) -> int:
        """Where the next line begins."""
        return self.offset + len(self.content)


def scan_lines(path: Path, start: int = 0, end: int | None = None) -> Iterator[LogLine]:
    """Walk the whole lines from `start`, which begins one, to `end` or to the end of the log.

    Only the head of a line that was written by this program is looked at.

    Raises:
        FileNotFoundError: there is no such log.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        file.seek(start)
        offset = start
        for content in file:
            if not content.endswith(b"\n") or (end is not None and offset >= end):
                return
            yield _line(offset, content)
            offset += len(content)


def _line(offset: int, content: bytes) -> LogLine:
    head = _PREFIX.match(content)
    if head is not None:
        return LogLine(offset, content, head[2].decode(), int(head[1]))
    record = parse_record(content)
    if record is None:
        return LogLine(offset, content, "", 0)
    return LogLine(offset, content, record.type, record.at_ms)
