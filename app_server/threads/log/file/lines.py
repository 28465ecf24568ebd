"""The lines of a log without their content: where each one is, and of which type.

Everything here blocks. A log of any size is read in bounded memory: the longest line, and no more.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from app_server.threads.log.file.bounded_lines import read_lines
from protocol.log.base import ROLLOUT_VERSION
from protocol.log.rollout import Record, parse_record

_PREFIX = re.compile(rb'\{"v":%d,"atMs":(-?\d{1,18}),"type":"(\w+)"' % ROLLOUT_VERSION)


class LogLine(NamedTuple):
    """One whole line."""

    offset: int
    """Bytes before it."""
    content: bytes
    """With its line end; empty when it is too long to be looked at."""
    type: str
    """Of its record; empty when nobody can read it."""
    at_ms: int
    end: int
    """Where the next line begins."""

    def record(self, *types: str) -> Record | None:
        """Read its record if that is of one of these types."""
        return parse_record(self.content) if self.type in types else None


def scan_lines(path: Path, start: int = 0, end: int | None = None) -> Iterator[LogLine]:
    """Walk the whole lines from `start`, which begins one, to `end` or to the end of the log.

    Only the head of a line that was written by this program is looked at. Lines of more than
    MAX_LINE_BYTES, of bounded_lines.py, come without their content.

    Raises:
        FileNotFoundError: there is no such log.
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        file.seek(start)
        offset = start
        for line in read_lines(file):
            if not line.ended or (end is not None and offset >= end):
                return
            next_offset = file.tell() if line.content is None else offset + len(line.content)
            yield _line(offset, line.content or b"", next_offset)
            offset = next_offset


def _line(offset: int, content: bytes, end: int) -> LogLine:
    head = _PREFIX.match(content)
    if head is not None:
        return LogLine(offset, content, head[2].decode(), int(head[1]), end)
    record = parse_record(content)
    if record is None:
        return LogLine(offset, content, "", 0, end)
    return LogLine(offset, content, record.type, record.at_ms, end)
