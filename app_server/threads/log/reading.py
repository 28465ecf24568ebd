"""Reading a log, wherever its store keeps it: line by line, added up, and what a fork copies of it.

Everything here blocks. Memory holds the longest line, and no more. A revert only appends: the lines
that it drops stay where they are, and every reader of the log passes over them.
Source: docs/architecture.md, "Threads on disk"; docs/wire.md, "History and search".
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import BinaryIO, NamedTuple, Protocol

from app_server.threads.failures import TurnInProgress, TurnNotFound
from app_server.threads.log.faults import FirstLineDamaged, LogFaults, LogTooNew
from app_server.threads.log.live import LogEnd
from app_server.threads.log.outline import ItemKind, LogLine, item_kind
from app_server.threads.log.state import NotARollout, ThreadState, begin
from protocol.log.base import ROLLOUT_VERSION
from protocol.log.metadata import OperationLogged
from protocol.log.rollout import (
    TURN_RECORDS,
    Record,
    ThreadCreated,
    TurnCompleted,
    TurnsReverted,
    TurnStarted,
    UsageRecorded,
    is_newer,
    parse_record,
)


class Log(Protocol):
    """The bytes of one thread's log: whole lines, and perhaps a torn one at the end. Blocks.

    Every method raises FileNotFoundError where there is no such log, and OSError where it cannot be
    read.
    """

    def __str__(self) -> str:
        """Name it, for people."""

    def open(self) -> BinaryIO:
        """Open it for reading at any offset, from its beginning on; the caller closes it."""

    def size(self) -> int:
        """Count its bytes."""

    def mentions(self, mark: bytes) -> bool:
        """Whether a line has these bytes; faster than to read the lines."""


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


def scan_lines(log: Log, start: int = 0, end: int | None = None) -> Iterator[LogLine]:
    """Walk the whole lines from `start`, which begins one, to `end` or to the end of the log.

    Only the head of a line that was written by this program is looked at. Lines of more than
    MAX_LINE_BYTES come without their content. What a named request appended ends the log where the
    process died in the middle of that write: its whole lines are no more than a torn one.

    Raises:
        FileNotFoundError: there is no such log.
        OSError: it cannot be read.
    """
    with log.open() as file:
        file.seek(start)
        offset = start
        for line in read_lines(file):
            if not line.ended or (end is not None and offset >= end):
                return
            next_offset = file.tell() if line.content is None else offset + len(line.content)
            found = _line(offset, line.content or b"", next_offset)
            if not _is_all_there(found, file):
                return
            yield found
            offset = next_offset


def _is_all_there(line: LogLine, file: BinaryIO) -> bool:
    """Whether the lines that were to be written together with this one follow it."""
    logged = line.record("operationLogged")
    if not isinstance(logged, OperationLogged) or not logged.lines:
        return True
    following = islice(read_lines(file), logged.lines)
    written = sum(one.ended for one in following)
    file.seek(line.end)
    return written == logged.lines


def _line(offset: int, content: bytes, end: int) -> LogLine:
    head = _PREFIX.match(content)
    if head is not None:
        return LogLine(offset, content, head[2].decode(), int(head[1]), end)
    record = parse_record(content)
    if record is None:
        return LogLine(offset, content, "", 0, end)
    return LogLine(offset, content, record.type, record.at_ms, end)


_REVERT_MARK = b'"type":"turnsReverted"'


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


def dropped_in(log: Log, before_turn_id: str | None = None) -> Dropped:
    """Find what the reverts of a log have dropped; most logs have none, and that is seen quickly.

    With `before_turn_id` one more revert counts, as if it stood at the end of the log.

    Raises:
        FileNotFoundError: there is no such log.
        OSError: it cannot be read.
    """
    if before_turn_id is None and not log.mentions(_REVERT_MARK):
        return Dropped()
    ranges: list[tuple[int, int]] = []
    turns: list[tuple[str, int]] = []
    end = 0
    for line in scan_lines(log):
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


_SIGNALS = b'"signals":['
_NO_ITEMS = b'"items":[]}\n'


def load_state(
    log: Log,
    faults: LogFaults | None = None,
    *,
    with_history: bool = True,
    before_turn_id: str | None = None,
    thorough: bool = False,
) -> ThreadState:
    """Add up what a log says, of any size, in one pass and in bounded memory.

    What the model sees is read as a whole; of what clients see, only what stays in memory.
    A torn last line is dropped, lines that make no sense or are of a newer version are skipped;
    `faults` counts them. Lines that need no reading are only looked at from both ends, but for
    those who are `thorough`. Without `with_history` the state's `history` stays empty, for those
    who only look. With `before_turn_id` the state is as a revert to before that turn would leave
    it.

    Raises:
        NotARollout: there is no whole line.
        FirstLineDamaged: there are some, and the first one does not create a thread.
        LogTooNew: the first line is of a newer version.
        FileNotFoundError: there is no such log.
        OSError: it cannot be read.
    """
    faults = LogFaults() if faults is None else faults
    dropped = dropped_in(log, before_turn_id)
    end, state = 0, None
    adding = _Adding(log=log, faults=faults, with_history=with_history, thorough=thorough)
    for line in scan_lines(log):
        end = line.end
        adding.number += 1
        if not dropped.has(line.type, line.offset):
            state = adding.add(state, line)
    faults.torn_bytes = max(0, log.size() - end)
    if state is None:
        raise FirstLineDamaged if adding.number else NotARollout
    if not with_history and state.history:
        state.history, state.history_left_out = [], True
    return state


def add_up(state: ThreadState, lines: Iterable[LogLine], log: Log) -> ThreadState:
    """Take lines of a log into account, with what the model sees.

    Raises:
        OSError: the lines cannot be read.
    """
    adding = _Adding(log=log, faults=LogFaults(), with_history=True)
    for adding.number, line in enumerate(lines, start=1):
        adding.add(state, line)
    return state


def read_created(log: Log) -> ThreadCreated:
    """Read the first line alone.

    Raises:
        NotARollout, FirstLineDamaged, LogTooNew, OSError: see `load_state`.
    """
    line = next(scan_lines(log), None)
    if line is None:
        raise NotARollout
    adding = _Adding(log=log, faults=LogFaults(), with_history=False, number=1)
    if (state := adding.add(None, line)) is None:
        raise FirstLineDamaged
    return state.created


def usage_in(log: Log) -> list[UsageRecorded]:
    """Read what a log says of usage.

    Raises:
        FileNotFoundError: there is no such log.
        OSError: it cannot be read.
    """
    lines = (line.record("usageRecorded") for line in scan_lines(log))
    return [record for record in lines if isinstance(record, UsageRecorded)]


@dataclass(slots=True, kw_only=True)
class _Adding:
    """Lines that are taken into account one after the other."""

    log: Log
    faults: LogFaults
    with_history: bool
    thorough: bool = False
    number: int = 0
    """Of the line that comes next, from 1."""

    def add(self, state: ThreadState | None, line: LogLine) -> ThreadState | None:
        if state is not None and self._needs_no_reading(state, line):
            if self._looks_whole(line):
                _note(state, line)
            return state
        record = self._read(line)
        if record is None:
            return state
        if state is not None:
            state.apply(record, len(line.content))
            return state
        if isinstance(record, ThreadCreated):
            return begin(record)
        raise FirstLineDamaged

    def _needs_no_reading(self, state: ThreadState, line: LogLine) -> bool:
        if line.type == "itemCompleted":
            return bool(state.preview) or item_kind(line.content) is not ItemKind.USER
        if line.type != "historyAppended" or self.with_history:
            return False
        # From its first signal on, what becomes of a thread's signals shows in its history.
        return not any(state.signals) and _SIGNALS not in line.content

    def _looks_whole(self, line: LogLine) -> bool:
        if self.thorough:
            return self._read(line) is not None
        # What a disk spoils are bytes in a row, mostly to zeros, or the end.
        if line.content.endswith(b"}\n") and b"\0" not in line.content:
            return True
        self.faults.add_damaged(self.number)
        return False

    def _read(self, line: LogLine) -> Record | None:
        record = parse_record(line.content)
        if record is None:
            if not is_newer(line.content):
                self.faults.add_damaged(self.number)
            elif self.number == 1:
                raise LogTooNew(str(self.log))
            else:
                self.faults.add_newer(self.number)
        return record


def _note(state: ThreadState, line: LogLine) -> None:
    state.updated_at_ms = max(state.updated_at_ms, line.at_ms)
    if line.type == "itemCompleted":
        state.keep(line.content, len(line.content))
    elif not line.content.endswith(_NO_ITEMS):
        state.history_left_out = True


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """Extent of a fork: the whole thread, or up to a turn, with or without it."""

    last_turn_id: str | None = None
    before_turn_id: str | None = None
    end: LogEnd | None = None
    """End of the log now, if somebody writes it; its last turn may be running then."""


_COPIED = TURN_RECORDS | {"itemEnded", "signalRecalled"}
"""Not taking a signal back would bring it back to the copy; what has ended would go on."""


def ranges_to_copy(log: Log, point: ForkPoint) -> list[tuple[int, int]]:
    """Return the bytes of a log that a fork begins with: whole lines of turns, in order.

    What turns wrote is copied, whatever its size; what is said about the thread as such (its name,
    whether it is archived) stays behind.

    Raises:
        TurnNotFound: the log has no such turn, or has it no more.
        TurnInProgress: the last turn to copy is still running.
        FileNotFoundError: there is no such log.
        OSError: it cannot be read.
    """
    ranges: list[tuple[int, int]] = []
    wanted = point.last_turn_id or point.before_turn_id
    turn_id, found = "", wanted is None
    for line in _lines_of_turns(log, point.end):
        match line.record("turnStarted", "turnCompleted"):
            case TurnStarted() as started:
                if wanted is not None and turn_id == point.last_turn_id:
                    return ranges
                turn_id = started.turn_id
                if wanted is not None and turn_id == point.before_turn_id:
                    return ranges
                found = found or turn_id == point.last_turn_id
            case TurnCompleted(turn_id=ended) if ended == turn_id == point.last_turn_id:
                _extend(ranges, line)
                return ranges
        _extend(ranges, line)
    if not found:
        raise TurnNotFound(wanted)
    if point.last_turn_id is not None and point.end is not None:
        raise TurnInProgress(wanted)
    return ranges


def lines_in(log: Log, ranges: Sequence[tuple[int, int]]) -> Iterator[LogLine]:
    """Walk the lines of ranges of a log."""
    for start, end in ranges:
        yield from scan_lines(log, start, end)


def _lines_of_turns(log: Log, end: int | None) -> Iterator[LogLine]:
    dropped = dropped_in(log)
    for line in scan_lines(log, 0, end):
        if line.type in _COPIED and not dropped.has(line.type, line.offset):
            yield line


def _extend(ranges: list[tuple[int, int]], line: LogLine) -> None:
    if ranges and ranges[-1][1] == line.offset:
        ranges[-1] = (ranges[-1][0], line.end)
    else:
        ranges.append((line.offset, line.end))
