"""Lines of a log: read in bounded memory, found by their heads, and dropped by reverts.

Everything here blocks. Memory holds the longest line, and no more. A revert only appends: the lines
that it drops stay where they are, and every reader of the log passes over them.
Source: docs/architecture.md, "Threads on disk".
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

from app_server.threads.log.outline import LogLine
from protocol.log.base import ROLLOUT_VERSION
from protocol.log.rollout import TURN_RECORDS, TurnsReverted, TurnStarted, parse_record

MAX_LINE_BYTES = 256 * 1024 * 1024
"""Of one line; the largest that a client can cause is a message of 64 MiB, escaped."""


class Line(NamedTuple):
    """One line as it stands in a file."""

    number: int
    """From 1."""
    content: bytes | None
    """With its line end; None when it is too long to be looked at."""
    ended: bool
    """Whether it has a line end; only the last line of a file may have none."""


def read_lines(file: BinaryIO, limit_bytes: int = MAX_LINE_BYTES) -> Iterator[Line]:
    """Read a file line by line, holding at most one line of `limit_bytes`.

    Raises:
        OSError: the file cannot be read.
    """
    number = 0
    while content := file.readline(limit_bytes):
        number += 1
        ended = content.endswith(b"\n")
        if ended or len(content) < limit_bytes:
            yield Line(number, content, ended)
            continue
        while content and not content.endswith(b"\n"):
            content = file.readline(limit_bytes)
        yield Line(number, None, bool(content))


_PREFIX = re.compile(rb'\{"v":%d,"atMs":(-?\d{1,18}),"type":"(\w+)"' % ROLLOUT_VERSION)


def scan_lines(path: Path, start: int = 0, end: int | None = None) -> Iterator[LogLine]:
    """Walk the whole lines from `start`, which begins one, to `end` or to the end of the log.

    Only the head of a line that was written by this program is looked at. Lines of more than
    MAX_LINE_BYTES come without their content.

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


_REVERT_MARK = b'"type":"turnsReverted"'
_REVERT_CHUNK = 1 << 18


@dataclass(frozen=True, slots=True)
class Dropped:
    """Ranges of bytes whose turn records do not count: ordered, apart from each other."""

    ranges: Sequence[tuple[int, int]] = ()

    def has(self, line_type: str, offset: int) -> bool:
        """Whether a line of this type at this place was dropped."""
        if not self.ranges or line_type not in TURN_RECORDS:
            return False
        place = bisect_right(self.ranges, (offset, 1 << 63)) - 1
        return place >= 0 and self.ranges[place][0] <= offset < self.ranges[place][1]


def dropped_in(path: Path, before_turn_id: str | None = None) -> Dropped:
    """Find what the reverts of a log have dropped; most logs have none, and that is seen quickly.

    With `before_turn_id` one more revert counts, as if it stood at the end of the log.

    Raises:
        FileNotFoundError: there is no such log.
        OSError: it cannot be read.
    """
    if before_turn_id is None and not _mentions_revert(path):
        return Dropped()
    ranges: list[tuple[int, int]] = []
    turns: list[tuple[str, int]] = []
    end = 0
    for line in scan_lines(path):
        end = line.end
        match line.record("turnStarted", "turnsReverted"):
            case TurnStarted(turn_id=turn_id):
                turns.append((turn_id, line.offset))
            case TurnsReverted(before_turn_id=turn_id):
                _drop(ranges, turns, turn_id, line.offset)
    if before_turn_id is not None:
        _drop(ranges, turns, before_turn_id, end)
    return Dropped(ranges)


def _drop(
    ranges: list[tuple[int, int]], turns: list[tuple[str, int]], turn_id: str, end: int
) -> None:
    for number in range(len(turns) - 1, -1, -1):
        if turns[number][0] == turn_id:
            start = turns[number][1]
            ranges[:] = [held for held in ranges if held[0] < start]
            ranges.append((start, end))
            del turns[number:]
            return


def _mentions_revert(path: Path) -> bool:
    with path.open("rb") as file:
        before = b""
        while chunk := file.read(_REVERT_CHUNK):
            if _REVERT_MARK in before + chunk:
                return True
            before = chunk[-len(_REVERT_MARK) :]
    return False
