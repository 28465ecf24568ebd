"""Comments above the tables of TOML text, put back where an edit has lost them. No I/O.

A comment above a header belongs to the table that begins there. tomlkit counts it to the table
above, and removes it with that.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

_HEADER = re.compile(r"\s*(\[.*?\]+)")


class _Header(NamedTuple):
    """Where a table begins."""

    name: tuple[str, int]
    """Its text, and which of those with this text it is: arrays of tables have several."""
    line: int
    above: Sequence[str]
    """The comments directly above it, with blank lines between; the first is a comment."""


def with_comments(before: str, after: str) -> str:
    """Return an edited text with the comments above headers that it shares with the old one."""
    had = {header.name: header.above for header in _headers(before.splitlines(keepends=True))}
    lines = after.splitlines(keepends=True)
    for header in reversed(_headers(lines)):
        missing = had.get(header.name, ())
        if not set(missing) <= set(header.above):
            lines[header.line : header.line] = missing
    return "".join(lines)


def _headers(lines: Sequence[str]) -> list[_Header]:
    found: list[_Header] = []
    seen: Counter[str] = Counter()
    above: list[str] = []
    for number, line in enumerate(lines):
        stripped = line.strip()
        if stripped.startswith("#") or (above and not stripped):
            above.append(line)
        elif match := _HEADER.match(line):
            seen[match[1]] += 1
            found.append(_Header((match[1], seen[match[1]]), number, tuple(above)))
            above = []
        elif stripped:
            above = []
    return found
