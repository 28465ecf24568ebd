"""Differences as unified diffs, and as git writes them. No I/O.

Source: docs/tools.md, "Patches"; https://git-scm.com/docs/diff-format.
"""

import hashlib
from bisect import bisect_left
from collections.abc import Iterator, Sequence

from app_server.patch.line_diff import Edit, line_edits

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
    """Write one hunk; `first` lines of both texts come before those that are given."""
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
