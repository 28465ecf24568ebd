"""Positions of tables and keys in a TOML text. No I/O.

Texts are looked at line by line: what stands in strings of several lines may be taken for a key.
"""

import re
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple, TypeAlias

KeyPath: TypeAlias = tuple[str, ...]

_HEADER = re.compile(r"\s*\[+\s*([^\]]+?)\s*\]+")
_KEY = re.compile(r"\s*((?:\"[^\"]*\"|'[^']*'|[\w.-]+)(?:\s*\.\s*(?:\"[^\"]*\"|[\w-]+))*)\s*=\s*")


class Position(NamedTuple):
    """A position in a file; line and column begin at 1."""

    file: Path
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class _Named(NamedTuple):
    """A line that names a table or a key."""

    number: int
    path: KeyPath
    indent: int
    value_at: int | None
    """Offset of the value in its line, from 0; None for a table."""


def locate(text: str, path: KeyPath) -> tuple[int, int]:
    """Find the line and column of a value, or of the table that holds it; (1, 1) when unsure."""
    best = (1, 1)
    for line in _named(text):
        if line.path == path:
            best = line.number, (line.value_at or 0) + 1
            if line.value_at is not None:
                break
    return best


def locate_key(text: str, path: KeyPath) -> tuple[int, int]:
    """Find line and column of a key's first occurrence, or of the longest part of its path."""
    best, longest = (1, 1), 0
    for line in _named(text):
        pairs = zip(line.path, path, strict=False)
        common = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
        if common > longest:
            best, longest = (line.number, line.indent + 1), common
    return best


def _named(text: str) -> Iterator[_Named]:
    table: KeyPath = ()
    for number, line in enumerate(text.splitlines(), start=1):
        indent = len(line) - len(line.lstrip())
        if header := _HEADER.match(line):
            table = _split_key(header[1])
            yield _Named(number, table, indent, None)
        elif key := _KEY.match(line):
            yield _Named(number, (*table, *_split_key(key[1])), indent, key.end())


def _split_key(text: str) -> KeyPath:
    parts = re.findall(r"\"([^\"]*)\"|'([^']*)'|([^.\s]+)", text)
    return tuple(next(filter(None, part), "") for part in parts)
