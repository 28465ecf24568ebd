"""Changing one value in TOML text, with every comment and line around it left alone. No I/O.

Importing this module imports tomlkit: app_server/config/editing/file.py does it when something is
written for the first time.
"""

import re
import tomllib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import tomlkit
from tomlkit.exceptions import TOMLKitError
from tomlkit.items import InlineTable, Table

KeyPath = Sequence[str]


class NotEditable(Exception):
    """The text has a form in which the value cannot be set without touching something else."""


def set_value(text: str, path: KeyPath, value: Any) -> str:
    """Return TOML text with a value set at a path, and no other value changed.

    A table that is missing is put at the end; a value, or an inline table, that is there is changed
    in its place. `value` is what `tomllib` could have read.

    Raises:
        tomllib.TOMLDecodeError: the text is not TOML.
        NotEditable: a way to do it was not found.
    """
    wanted = tomllib.loads(text)
    _put(wanted, path, value)
    ways: Sequence[Callable[[str, KeyPath, Any], str]] = (
        _append,
        _insert,
        _put_anew,
        _insert_inline,
    )
    for way in ways:
        try:
            edited = _as_written(text, way(text, path, value))
            if tomllib.loads(edited) == wanted:
                return edited
        except (TOMLKitError, AttributeError, LookupError, TypeError, ValueError):
            # The library has forms that it reads but cannot change; the other way may do.
            continue
    raise NotEditable(f"cannot set `{'.'.join(path)}` in the form that it has")


def remove(text: str, path: KeyPath) -> str:
    """Return TOML text without the value at a path, and no other value changed.

    Comments inside of a table go with it, those above the next header stay. A text without the
    value is returned as it is.

    Raises:
        tomllib.TOMLDecodeError: the text is not TOML.
        NotEditable: a way to do it was not found.
    """
    wanted = tomllib.loads(text)
    above: Any = wanted
    for key in path[:-1]:
        above = above.get(key) if isinstance(above, dict) else None
    if not isinstance(above, dict) or path[-1] not in above:
        return text
    del above[path[-1]]
    try:
        edited = _as_written(text, _remove(text, path))
        if _without_empty(tomllib.loads(edited), path) == _without_empty(wanted, path):
            return edited
    except (TOMLKitError, AttributeError, LookupError, TypeError, ValueError) as exc:
        raise NotEditable(f"cannot remove `{'.'.join(path)}` in the form that it has") from exc
    raise NotEditable(f"cannot remove `{'.'.join(path)}` in the form that it has")


def _as_written(before: str, after: str) -> str:
    """Give an edited text the comments above headers, and the line ends, of the old one."""
    after = _with_comments(before, after)
    if "\r\n" in before and "\n" not in before.replace("\r\n", ""):
        after = after.replace("\r\n", "\n").replace("\n", "\r\n")
    return after


def _remove(text: str, path: KeyPath) -> str:
    document = tomlkit.parse(text)
    table: Any = document
    for key in path[:-1]:
        table = table[key]
    del table[path[-1]]
    return tomlkit.dumps(document)


def _put_anew(text: str, path: KeyPath, value: Any) -> str:
    """Remove the old value, then append the new one: for a table in place of another."""
    return _append(_remove(text, path), path, value)


def _insert_inline(text: str, path: KeyPath, value: Any) -> str:
    """Insert a table as an inline one: where dotted keys stand there is no place for a header."""
    return _insert(text, path, _inline(value))


def _inline(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    table = tomlkit.inline_table()
    table.update({key: _inline(inner) for key, inner in value.items()})
    return table


def _without_empty(document: dict[str, Any], path: KeyPath) -> dict[str, Any]:
    """Drop tables on the way that are empty: without members they may have lost their header."""
    if not path or not isinstance(inner := document.get(path[0]), dict):
        return document
    left = _without_empty(inner, path[1:])
    return {key: value for key, value in document.items() if key != path[0]} | (
        {path[0]: left} if left else {}
    )


def _put(document: dict[str, Any], path: KeyPath, value: Any) -> None:
    for key in path[:-1]:
        document = document.setdefault(key, {})
        if not isinstance(document, dict):
            raise NotEditable(f"`{key}` of `{'.'.join(path)}` is not a table")
    document[path[-1]] = value


def _append(text: str, path: KeyPath, value: Any) -> str:
    document = tomlkit.document()
    table: Any = document
    for depth, key in enumerate(path[:-1], start=2):
        table[key] = tomlkit.table(is_super_table=depth < len(path))
        table = table[key]
    table[path[-1]] = value
    end = "\r\n" if "\r\n" in text else "\n"
    missing = end if text and not text.endswith("\n") else ""
    addition = tomlkit.dumps(document).replace("\n", end)
    return f"{text}{missing}{end if text else ''}{addition}"


def _insert(text: str, path: KeyPath, value: Any) -> str:
    document = tomlkit.parse(text)
    table: Any = document
    for key in path[:-1]:
        if key not in table:
            inline = isinstance(table, InlineTable)
            table[key] = tomlkit.inline_table() if inline else tomlkit.table()
        table = table[key]
    if isinstance(table, Table):
        # Comments before the next header belong to that; a new key goes above them.
        body, behind = table.value.body, []
        while body and body[-1][0] is None:
            behind.append(body.pop())
        table[path[-1]] = value
        body.extend(reversed(behind))
    else:
        table[path[-1]] = value
    return tomlkit.dumps(document)


_HEADER = re.compile(r"\s*(\[.*?\]+)")


class _Header(NamedTuple):
    """Header of a table."""

    name: tuple[str, int]
    """Its text, and which of those with this text it is: arrays of tables have several."""
    line: int
    above: Sequence[str]
    """The comments directly above it, with blank lines between; the first is a comment."""


def _with_comments(before: str, after: str) -> str:
    """Return an edited text with the comments above headers that it shares with the old one.

    A comment above a header belongs to the table that begins there. tomlkit counts it to the table
    above, and removes it with that.
    """
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
