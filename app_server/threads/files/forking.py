"""A log that begins with a copy of another one's lines. Blocks.

What turns wrote is copied as bytes, whatever its size; what is said about the thread as such (its
name, whether it is archived) stays behind.
Source: docs/wire.md, "History and search".
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from app_server.runtime.files.disk import atomic_write, make_folder
from app_server.threads.failures import TurnInProgress, TurnNotFound
from app_server.threads.files.lines import dropped_in, scan_lines
from app_server.threads.log.outline import LogLine
from app_server.threads.store import ForkPoint
from protocol.log.rollout import (
    TURN_RECORDS,
    ThreadCreated,
    TurnCompleted,
    TurnStarted,
    render_record,
)

_CHUNK = 1 << 20
_COPIED = TURN_RECORDS | {"itemEnded", "signalRecalled"}
"""Not taking a signal back would bring it back to the copy; what has ended would go on."""


def ranges_to_copy(path: Path, point: ForkPoint) -> list[tuple[int, int]]:
    """Return the bytes of a log that a fork begins with: whole lines of turns, in order.

    Raises:
        TurnNotFound: the log has no such turn, or has it no more.
        TurnInProgress: the last turn to copy is still running.
        FileNotFoundError: there is no such log.
        OSError: it cannot be read.
    """
    ranges: list[tuple[int, int]] = []
    wanted = point.last_turn_id or point.before_turn_id
    turn_id, found = "", wanted is None
    for line in _lines_of_turns(path, point.end):
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


def lines_in(path: Path, ranges: Sequence[tuple[int, int]]) -> Iterator[LogLine]:
    """Walk the lines of ranges of a log."""
    for start, end in ranges:
        yield from scan_lines(path, start, end)


def write_fork(
    source: Path, ranges: Sequence[tuple[int, int]], created: ThreadCreated, target: Path
) -> None:
    """Write a new log: its first line, then the ranges; it is there as a whole, on disk, or not.

    Raises:
        OSError: the disk refused; there is no new log.
    """
    make_folder(target.parent)
    draft = target.with_suffix(".part")
    with source.open("rb") as old, atomic_write(target, draft) as new:
        new.write(render_record(created))
        for start, end in ranges:
            old.seek(start)
            left = end - start
            while left > 0 and (chunk := old.read(min(left, _CHUNK))):
                new.write(chunk)
                left -= len(chunk)


def _lines_of_turns(path: Path, end: int | None) -> Iterator[LogLine]:
    dropped = dropped_in(path)
    for line in scan_lines(path, 0, end):
        if line.type in _COPIED and not dropped.has(line.type, line.offset):
            yield line


def _extend(ranges: list[tuple[int, int]], line: LogLine) -> None:
    if ranges and ranges[-1][1] == line.offset:
        ranges[-1] = (ranges[-1][0], line.end)
    else:
        ranges.append((line.offset, line.end))
