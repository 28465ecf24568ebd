"""Differences as unified diffs and as git writes them, and the diff of a turn. No I/O.

The diff of a turn is one git diff against the files as they were before it. No repository is asked:
the files of before are kept here.
Source: docs/tools.md, "Patches"; https://git-scm.com/docs/diff-format.
"""

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pydantic_core import to_json

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


def line_edits(
    old: Sequence[str],
    new: Sequence[str],
    *,
    max_edits: int = MAX_EDITS,
    max_steps: int = MAX_STEPS,
) -> list[Edit]:
    """Return the edits that make `new` of `old`, in their order, none touching another.

    A piece in which more than `max_edits` lines differ is cut, or replaced whole; so is what is
    left after `max_steps` of the comparison.
    """
    numbers: dict[str, int] = {}
    before = [numbers.setdefault(line, len(numbers)) for line in old]
    after = [numbers.setdefault(line, len(numbers)) for line in new]
    edits: list[Edit] = []
    for edit in _edits(before, after, _Greedy(max_edits, max_steps)):
        if edits and (edits[-1].old_end, edits[-1].new_end) == (edit.old_start, edit.new_start):
            edits[-1] = Edit(edits[-1].old_start, edit.old_end, edits[-1].new_start, edit.new_end)
        else:
            edits.append(edit)
    return edits


_Piece = tuple[int, int, int, int]


def _edits(old: list[int], new: list[int], greedy: "_Greedy") -> Iterator[Edit]:
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

    def __init__(self, max_edits: int, max_steps: int) -> None:
        self._max_edits = max_edits
        self._left = max_steps

    def edits(self, old: Sequence[int], new: Sequence[int]) -> list[Edit] | None:
        """Find a shortest script; None if it has over `max_edits`, or the steps are used up."""
        count, other = len(old), len(new)
        reached = {1: 0}
        rounds: list[dict[int, int]] = []
        for depth in range(self._max_edits + 1):
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


NO_NEWLINE = "\\ No newline at end of file\n"
NO_BLOB = "0" * 40


def hunks(old: str, new: str, context: int) -> str:
    """Return the hunks of a unified diff, each line that ends the file without a feed marked.

    `context` lines stand around each change; nothing is said if there is none.
    """
    if old == new:
        return ""
    start, end = _same(old, new, context)
    before, after = _lines(old[start : len(old) - end]), _lines(new[start : len(new) - end])
    first = old.count("\n", 0, start)
    return "".join(
        _rendered(group, before, after, context, first)
        for group in _groups(line_edits(before, after), context)
    )


def blob_name(content: bytes) -> str:
    """Return the name that git gives to a file's content."""
    # Git's own naming, nothing that has to be secret.
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _same(old: str, new: str, context: int) -> tuple[int, int]:
    """Return how many characters at both ends need not be looked at.

    They are whole lines that are the same in both, without those that are context of a change.
    """
    short = min(len(old), len(new))
    start = bisect_left(range(short + 1), True, key=lambda n: old[:n] != new[:n]) - 1
    end = bisect_left(
        range(short - start + 1),
        True,
        key=lambda n: old[len(old) - n :] != new[len(new) - n :],
    )
    end -= 1
    for _ in range(context + 1):
        start = old.rfind("\n", 0, max(start, 0)) if start > 0 else -1
    cut = len(old) - end
    for _ in range(context + 1):
        cut = old.find("\n", cut) + 1 or len(old)
    return start + 1, len(old) - cut


def _lines(text: str) -> list[str]:
    parts = text.split("\n")
    last = parts.pop()
    lines = [f"{part}\n" for part in parts]
    if last:
        lines.append(last)
    return lines


def _groups(edits: Sequence[Edit], context: int) -> Iterator[list[Edit]]:
    """Gather edits whose lines of context touch."""
    group: list[Edit] = []
    for edit in edits:
        if group and edit.old_start - group[-1].old_end > 2 * context:
            yield group
            group = []
        group.append(edit)
    if group:
        yield group


def _rendered(
    group: Sequence[Edit], before: Sequence[str], after: Sequence[str], context: int, first: int
) -> str:
    """Render one hunk; `first` lines of both texts precede the given ones."""
    start = max(0, group[0].old_start - context)
    end = min(len(before), group[-1].old_end + context)
    new_start = group[0].new_start - (group[0].old_start - start)
    new_end = group[-1].new_end + (end - group[-1].old_end)
    old_range = _range(first + start, first + end)
    out = [f"@@ -{old_range} +{_range(first + new_start, first + new_end)} @@\n"]
    at = start
    for edit in group:
        out += [_line(" ", line) for line in before[at : edit.old_start]]
        out += [_line("-", line) for line in before[edit.old_start : edit.old_end]]
        out += [_line("+", line) for line in after[edit.new_start : edit.new_end]]
        at = edit.old_end
    out += [_line(" ", line) for line in before[at:end]]
    return "".join(out)


def _range(start: int, end: int) -> str:
    match end - start:
        case 0:
            return f"{start},0"
        case 1:
            return f"{start + 1}"
        case count:
            return f"{start + 1},{count}"


def _line(mark: str, line: str) -> str:
    return f"{mark}{line}" if line.endswith("\n") else f"{mark}{line}\n{NO_NEWLINE}"


CONTEXT_LINES = 3

MAX_DIFF_BYTES = 1_000_000
"""Of one diff as JSON writes it, so that a notification with it stays within 1 MiB."""

MAX_KEPT_CHARS = 64 * 1_048_576
"""Of the files of one turn, before and after; what is above is not shown."""


@dataclass(frozen=True, slots=True)
class FileSnapshot:
    """A file at one time."""

    text: str
    mode: str = "100644"
    """As git writes it."""


@dataclass(slots=True)
class _File:
    first: FileSnapshot | None
    now: FileSnapshot | None
    origin: str | None = None
    """The path from which it was moved here; None: it was not."""
    part: tuple[str, int] | None = None
    """Cached diff of the path and its bytes as JSON; None when it is out of date."""


@dataclass(slots=True)
class TurnDiff:
    """The files that a turn has touched."""

    max_kept_chars: int = MAX_KEPT_CHARS
    """Of the files, before and after; what is above is not shown."""
    _files: dict[str, _File] = field(default_factory=dict)
    _kept_chars: int = 0
    _origins: set[str] = field(default_factory=set)
    _unseen: set[str] = field(default_factory=set)
    """Touched, and not kept."""

    def touch(
        self,
        path: str,
        before: FileSnapshot | None,
        after: FileSnapshot | None,
        moved_from: str | None = None,
    ) -> None:
        """Add the effect of one change on one path, in their order; None means no file.

        `moved_from` is the path whose file it was.
        """
        known = self._files.get(path)
        if path in self._unseen:
            return
        if known is None:
            self._kept_chars += _chars(before)
        self._kept_chars += _chars(after) - (_chars(known.now) if known else 0)
        if self._kept_chars > self.max_kept_chars:
            first = known.first if known else before
            self._kept_chars -= _chars(first) + _chars(after)
            self._files.pop(path, None)
            self._unseen.add(path)
            return
        file = self._files[path] = known or _File(before, None)
        file.now, file.part = after, None
        if after is not None:
            file.origin = None
        if moved_from is not None and file.first is None:
            source = self._files.get(moved_from)
            file.origin = source.origin or moved_from if source else None
            self._origins.add(moved_from)
        # What was made from the file at this path may be shown in another way now.
        if path in self._origins:
            for other in self._files.values():
                if other.origin == path:
                    other.part = None

    def render(self) -> str:
        """Return the diff; "" if all is as it was. It ends with a note if something is left out."""
        moved = {file.origin for file in self._files.values() if self._is_move(file)}
        shown = [
            (file.origin if self._is_move(file) else path, path)
            for path, file in self._files.items()
            if path not in moved and file.first != file.now
        ]
        parts: list[str] = []
        left_out, room = len(self._unseen), MAX_DIFF_BYTES
        for _, path in sorted(shown):
            text, size = self._part(path)
            if size > room:
                left_out += 1
            else:
                room -= size
                parts.append(text)
        if left_out:
            files = "file is" if left_out == 1 else "files are"
            parts.append(f"# {left_out} more changed {files} not shown: too large\n")
        return "".join(parts)

    def _is_move(self, file: _File) -> bool:
        """Whether a file is shown as one that was there before, under another name."""
        source = self._files.get(file.origin) if file.origin is not None else None
        if source is None or source is file:
            return False
        return source.first is not None and source.now is None and file.now is not None

    def _part(self, path: str) -> tuple[str, int]:
        file = self._files[path]
        if file.part is None:
            text = self._rendered(path, file)
            file.part = text, len(to_json(text))
        return file.part

    def _rendered(self, path: str, file: _File) -> str:
        before, after, old = file.first, file.now, path
        if file.origin is not None and self._is_move(file):
            old = file.origin
            before = self._files[old].first
        head = [f"diff --git a/{old} b/{path}\n"]
        if before is None and after is not None:
            head.append(f"new file mode {after.mode}\n")
        if before is not None and after is None:
            head.append(f"deleted file mode {before.mode}\n")
        if before is not None and after is not None and before.text == after.text:
            head += ["similarity index 100%\n", f"rename from {old}\n", f"rename to {path}\n"]
            return "".join(head)
        head.append(f"index {_blob(before)}..{_blob(after)}\n")
        body = hunks(before.text if before else "", after.text if after else "", CONTEXT_LINES)
        if body:
            head.append("--- /dev/null\n" if before is None else f"--- a/{old}\n")
            head.append("+++ /dev/null\n" if after is None else f"+++ b/{path}\n")
        return "".join(head) + body


def _chars(file: FileSnapshot | None) -> int:
    return len(file.text) if file else 0


def _blob(file: FileSnapshot | None) -> str:
    return blob_name(file.text.encode()) if file else NO_BLOB
