"""Which files a permission profile lets be read: its entries as rules about real paths.

Fails closed: what is not understood and may be a prohibition forbids everything, and what is not
understood and may be a permission gives none.
Source: docs/apps.md, "Files".
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from app_server.permissions.sandbox.paths import folded
from protocol.model import Json, JsonObject

MAX_ENTRIES = 1024
"""Of a profile; one with more lets nothing be read."""

Parts: TypeAlias = tuple[str, ...]
"""A real path below `/`, without `.` and `..`."""


def parts_of(real: str) -> Parts:
    """Take a real path apart."""
    return tuple(part for part in real.split("/") if part)


_READS = ("read", "write")
_FORBIDS = ("deny", "none")


@dataclass(frozen=True, slots=True)
class _Rule:
    parts: Parts
    allows: bool

    def is_above(self, parts: Parts) -> bool:
        """Whether a path lies below, or at, the place; prohibitions do not look at case."""
        there = parts[: len(self.parts)]
        if self.allows:
            return there == self.parts
        return tuple(map(folded, there)) == tuple(map(folded, self.parts))


@dataclass(frozen=True, slots=True)
class Readable:
    """The rules of one profile. Of the rules above a path the one with most parts counts.

    Of two for the same place the prohibition counts. A pattern forbids whatever rules allow.
    """

    rules: Sequence[_Rule]
    forbidden: Sequence[re.Pattern[str]] = ()

    @property
    def is_empty(self) -> bool:
        """Whether it allows no path at all."""
        return not any(rule.allows for rule in self.rules)

    def allows(self, parts: Parts) -> bool:
        """Whether a real path may be read."""
        above = [rule for rule in self.rules if rule.is_above(parts)]
        if not above:
            return False
        nearest = max(len(rule.parts) for rule in above)
        if not all(rule.allows for rule in above if len(rule.parts) == nearest):
            return False
        places = [folded("/" + "/".join(parts[:end])) for end in range(1, len(parts) + 1)]
        return not any(one.fullmatch(place) for one in self.forbidden for place in places)


NOTHING = Readable(())


def reads_everything(profile: Json) -> bool:
    """Whether a permission profile lets every file be read."""
    match profile:
        case {"type": "disabled" | "external"}:
            return True
        case {"type": "managed", "file_system": {"entries": list(entries)}}:
            return any(map(_is_root, entries)) and all(map(_only_allows, entries))
    return False


def readable(profile: JsonObject, cwd: str, environ: Mapping[str, str] = os.environ) -> Readable:
    """Read the rules of a profile; blocks, as links in its paths are resolved.

    `cwd` is the folder of the project, and where relative patterns begin.
    """
    match profile:
        case {"type": "managed", "file_system": {"entries": list(entries)}}:
            if len(entries) > MAX_ENTRIES:
                return NOTHING
            return _rules(entries, cwd, environ)
    return NOTHING


def _rules(entries: Sequence[Json], cwd: str, environ: Mapping[str, str]) -> Readable:
    rules: list[_Rule] = []
    forbidden: list[re.Pattern[str]] = []
    for entry in entries:
        access = entry.get("access") if isinstance(entry, dict) else None
        if not isinstance(entry, dict) or access not in (*_READS, *_FORBIDS):
            return NOTHING
        allows = access in _READS
        match entry.get("path"):
            case {"type": "glob_pattern", "pattern": str(pattern)}:
                found = None if allows else _pattern(pattern, cwd)
                if found is not None:
                    forbidden.append(found)
                elif not allows:
                    return NOTHING
            case path:
                places = list(_places(path, cwd, environ))
                if not places and not allows:
                    return NOTHING
                rules += [_Rule(_real_parts(place), allows) for place in places]
    return Readable(rules, forbidden)


def _places(path: Json, cwd: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Give the absolute paths that an entry means; none if that is not known here."""
    match path:
        case {"type": "path", "path": str(place)} if place.startswith("/"):
            yield place
        case {"type": "special", "value": {"kind": "root"}}:
            yield "/"
        case {"type": "special", "value": {"kind": "slash_tmp"}}:
            yield "/tmp"  # noqa: S108 - the policy names this folder
        case {"type": "special", "value": {"kind": "tmpdir"}}:
            if (place := environ.get("TMPDIR", "")).startswith("/"):
                yield place
        case {"type": "special", "value": {"kind": "project_roots", "subpath": str(below)}}:
            yield str(Path(cwd) / below)
        case {"type": "special", "value": {"kind": "project_roots"}}:
            yield cwd


def _real_parts(place: str) -> Parts:
    return Path(os.path.realpath(place)).parts[1:]


_PLAIN = re.compile(r"(/?(?:[^*?/]+/)*)(.*)", re.DOTALL)
"""A path up to the last folder before a wildcard, and the rest."""


def _pattern(pattern: str, cwd: str) -> re.Pattern[str] | None:
    """Translate a pattern into one that matches at least as much; None if that is not clear.

    `*` goes across folders here, so that more is forbidden rather than less.
    """
    if re.search(r"[{}\\\[\]!]", pattern) or "\0" in pattern:
        return None
    whole = str(Path(cwd) / pattern)
    plain, wild = _PLAIN.fullmatch(whole).groups()  # type: ignore[union-attr]
    if not re.search(r"[*?]", wild):
        return re.compile(re.escape(folded(os.path.realpath(whole))))
    if ".." in wild.split("/"):
        return None
    pieces = re.split(r"(\*\*/|\*+|\?)", folded(f"{os.path.realpath(plain).rstrip('/')}/{wild}"))
    return re.compile(
        "".join(
            "." if piece == "?" else ".*" if piece.startswith("*") else re.escape(piece)
            for piece in pieces
        ),
        re.DOTALL,
    )


def _only_allows(entry: Json) -> bool:
    # What is not understood may be a prohibition.
    return isinstance(entry, dict) and entry.get("access") in ("read", "write")


def _is_root(entry: Json) -> bool:
    match entry:
        case {"path": {"type": "special", "value": {"kind": "root"}}, "access": "read" | "write"}:
            return True
    return False
