"""Edits of config.toml: key paths as clients write them, and steps on a document.

No I/O, and nothing of how TOML text is written (app_server/config/editing/toml_edit.py).
Source: docs/config.md, "What clients write".
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from app_server.config.positions import KeyPath
from app_server.config.values import Document
from protocol.server.config import ConfigEdit

MAX_STEPS = 100
"""Values that one request may set or remove."""

MAX_DEPTH = 32
"""Of tables and lists in each other, in a key path or a value."""

MIN_INTEGER, MAX_INTEGER = -(1 << 63), (1 << 63) - 1
"""TOML 1.0, "Integer"."""

LEGACY = ("profile", "profiles")
"""Keys of older versions of Codex, which today's refuses to write."""


class BadEdit(Exception):
    """An edit that makes no sense; the text is for the client."""


class Step(NamedTuple):
    """Set the value at a path; None removes it, as TOML has no null."""

    path: KeyPath
    value: Any


def split_key_path(text: str) -> KeyPath:
    """Split a key path at its dots; a part in double quotes may hold dots, and escapes.

    A backslash takes the character behind it as it stands.

    Raises:
        BadEdit: it is empty, has an empty part, or quotes that do not fit.
    """
    if not text.strip():
        raise BadEdit("keyPath must not be empty")
    path = tuple(_parts(text))
    if not all(path):
        raise BadEdit("keyPath segments must not be empty")
    if len(path) > MAX_DEPTH:
        raise BadEdit(f"keyPath has more than {MAX_DEPTH} segments")
    return path


def _parts(text: str) -> Iterator[str]:
    part, quoted, characters = "", False, iter(text)
    for character in characters:
        if quoted and character == "\\":
            part += next(characters, "")
        elif character == '"':
            if not quoted and part:
                raise BadEdit("invalid quoted keyPath segment")
            quoted = not quoted
        elif character == "." and not quoted:
            yield part
            part = ""
        else:
            part += character
    if quoted:
        raise BadEdit("unterminated quoted keyPath segment")
    yield part


def steps_of(document: Document, edit: ConfigEdit) -> Iterator[Step]:
    """Return the steps of an edit; one that merges keeps members that it does not name.

    Raises:
        BadEdit: the path or the value does not fit.
    """
    path = split_key_path(edit.key_path)
    if path[0] in LEGACY:
        raise BadEdit(f"`{path[0]}` is a key of older versions and can no longer be written")
    if edit.value is not None:
        _check(edit.value, len(path))
    if edit.merge_strategy == "upsert":
        yield from _merging(value_at(document, path), path, edit.value)
    else:
        yield Step(path, edit.value)


def _merging(present: Any, path: KeyPath, value: Any) -> Iterator[Step]:
    if not (isinstance(present, dict) and isinstance(value, dict)):
        yield Step(path, value)
        return
    for key, inner in value.items():
        yield from _merging(present.get(key), (*path, key), inner)


def take(document: Document, step: Step) -> None:
    """Apply a step to a document; removing a missing key has no effect.

    Raises:
        BadEdit: the way to the value leads through one that is no table.
    """
    *above, last = step.path
    for key in above:
        inner = document.get(key)
        if inner is None and step.value is not None:
            inner = document[key] = {}
        if not isinstance(inner, dict):
            if step.value is None:
                return
            raise BadEdit("cannot set value on non-table parent")
        document = inner
    if step.value is None:
        document.pop(last, None)
    else:
        document[last] = step.value


def value_at(document: Mapping[str, Any], path: KeyPath) -> Any:
    """Return the value at a path; None without one."""
    value: Any = document
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def _check(value: Any, depth: int) -> None:
    """Refuse a value that TOML cannot express."""
    if depth > MAX_DEPTH:
        raise BadEdit(f"invalid value: nested deeper than {MAX_DEPTH}")
    match value:
        case None:
            raise BadEdit("invalid value: invalid type: null, expected any valid TOML value")
        case bool():
            return
        case int() if not MIN_INTEGER <= value <= MAX_INTEGER:
            raise BadEdit("invalid value: an integer of TOML has 64 bits")
        case float() if not math.isfinite(value):
            raise BadEdit("invalid value: a number must be finite")
        case list():
            for inner in value:
                _check(inner, depth + 1)
        case dict():
            for inner in value.values():
                _check(inner, depth + 1)
