"""What differs between two lists of lines, in time that is bounded whatever is in them. No I/O.

Equal lines at both ends are set aside. What is left is compared by Myers' greedy algorithm while
few lines differ; where many do, it is cut at lines that are there once on both sides (patience
diff), and each piece is compared by itself. A piece that still differs much is replaced whole.
Source: E. Myers, "An O(ND) Difference Algorithm and Its Variations", 1986.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

MAX_EDITS = 200
"""Lines that may differ in what is compared by Myers' algorithm."""

MAX_STEPS = 2_000_000
"""Of that algorithm in one comparison; what is left then is replaced whole."""


@dataclass(frozen=True, slots=True)
class Edit:
    """Lines `old_start` to `old_end` (not counted) become lines `new_start` to `new_end`."""

    old_start: int
    old_end: int
    new_start: int
    new_end: int


def line_edits(old: Sequence[str], new: Sequence[str]) -> list[Edit]:
    """Return the edits that make `new` of `old`, in their order, none touching another."""
    numbers: dict[str, int] = {}
    before = [numbers.setdefault(line, len(numbers)) for line in old]
    after = [numbers.setdefault(line, len(numbers)) for line in new]
    edits: list[Edit] = []
    for edit in _edits(before, after):
        if edits and (edits[-1].old_end, edits[-1].new_end) == (edit.old_start, edit.new_start):
            edits[-1] = Edit(edits[-1].old_start, edit.old_end, edits[-1].new_start, edit.new_end)
        else:
            edits.append(edit)
    return edits


_Piece = tuple[int, int, int, int]


def _edits(old: list[int], new: list[int]) -> Iterator[Edit]:
    greedy = _Greedy()
    waiting: list[_Piece] = [(0, len(old), 0, len(new))]
    while waiting:
        o, oe, n, ne = _trimmed(old, new, waiting.pop())
        if o == oe and n == ne:
            continue
        if o == oe or n == ne:
            yield Edit(o, oe, n, ne)
            continue
        found = greedy.edits(old[o:oe], new[n:ne])
        if found is not None:
            for edit in found:
                yield Edit(
                    o + edit.old_start, o + edit.old_end, n + edit.new_start, n + edit.new_end
                )
            continue
        pieces = _cut(old, new, (o, oe, n, ne))
        if len(pieces) > 1:
            waiting += reversed(pieces)
        else:
            yield Edit(o, oe, n, ne)


def _trimmed(old: list[int], new: list[int], piece: _Piece) -> _Piece:
    o, oe, n, ne = piece
    while o < oe and n < ne and old[o] == new[n]:
        o, n = o + 1, n + 1
    while o < oe and n < ne and old[oe - 1] == new[ne - 1]:
        oe, ne = oe - 1, ne - 1
    return o, oe, n, ne


def _cut(old: list[int], new: list[int], piece: _Piece) -> list[_Piece]:
    """Cut a piece at lines that are there once on both sides, as many as keep their order."""
    o, oe, n, ne = piece
    in_old, in_new = Counter(old[o:oe]), Counter(new[n:ne])
    place = {line: at for at, line in enumerate(new[n:ne], n) if in_new[line] == 1}
    pairs = [
        (at, place[line])
        for at, line in enumerate(old[o:oe], o)
        if in_old[line] == 1 and line in place
    ]
    pieces: list[_Piece] = []
    for at, there in _rising(pairs):
        pieces.append((o, at, n, there))
        o, n = at + 1, there + 1
    return [*pieces, (o, oe, n, ne)]


def _rising(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest run of pairs whose second members rise, as their first ones do."""
    tops: list[int] = []
    last: list[int] = []
    before: list[int] = []
    for index, (_, there) in enumerate(pairs):
        pile = bisect_left(tops, there)
        before.append(last[pile - 1] if pile else -1)
        tops[pile : pile + 1] = [there]
        last[pile : pile + 1] = [index]
    run: list[tuple[int, int]] = []
    at = last[-1] if last else -1
    while at >= 0:
        run.append(pairs[at])
        at = before[at]
    return run[::-1]


class _Greedy:
    """Finds shortest scripts of edits, for as long as its steps last."""

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def edits(self, old: Sequence[int], new: Sequence[int]) -> list[Edit] | None:
        """Find a shortest script; None if it is longer than MAX_EDITS, or the steps are used up."""
        count, other = len(old), len(new)
        reached = {1: 0}
        rounds: list[dict[int, int]] = []
        for depth in range(MAX_EDITS + 1):
            rounds.append(reached)
            following: dict[int, int] = {}
            for diagonal in range(-depth, depth + 1, 2):
                start = x = _furthest(reached, diagonal, count)
                y = x - diagonal
                if x < 0 or y > other:
                    continue
                while x < count and y < other and old[x] == new[y]:
                    x, y = x + 1, y + 1
                following[diagonal] = x
                if x == count and y == other:
                    return _traced(rounds, diagonal, count)
                self._left -= 1 + x - start
            if self._left < 0:
                return None
            reached = following
        return None


def _furthest(reached: Mapping[int, int], diagonal: int, count: int) -> int:
    """Return how far a diagonal can be reached by one more edit; negative if it cannot."""
    down, right = reached.get(diagonal + 1, -1), reached.get(diagonal - 1, -2) + 1
    return right if down < right <= count else down


def _traced(rounds: Sequence[Mapping[int, int]], diagonal: int, count: int) -> list[Edit]:
    """Walk a script back from its end."""
    edits: list[Edit] = []
    for reached in rounds[:0:-1]:
        x = _furthest(reached, diagonal, count)
        y = x - diagonal
        if reached.get(diagonal + 1) == x:
            edits.append(Edit(x, x, y - 1, y))
            diagonal += 1
        else:
            edits.append(Edit(x - 1, x, y, y))
            diagonal -= 1
    return edits[::-1]
