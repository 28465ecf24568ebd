"""What reverts of a thread have dropped from its log. Everything here blocks.

A revert only appends: the lines that it drops stay where they are, and everybody who reads the log
passes over them.
Source: docs/architecture.md, "Threads on disk".
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app_server.threads.log.file.lines import scan_lines
from protocol.log.rollout import TURN_RECORDS, TurnsReverted, TurnStarted

_MARK = b'"type":"turnsReverted"'
_CHUNK = 1 << 18


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
        while chunk := file.read(_CHUNK):
            if _MARK in before + chunk:
                return True
            before = chunk[-len(_MARK) :]
    return False
