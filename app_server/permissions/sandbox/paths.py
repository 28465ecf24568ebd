"""Absolute paths as texts: what is in what, how deep, and patterns for paths that are denied.

`*` and `?` stand for anything in a name, `**` for any folders. What a pattern matches is denied
with all that is in it.
Source: docs/config.md, "Permission profiles".
"""

import os
import re
import unicodedata
from collections.abc import Iterator, Sequence


def is_in(path: str, folder: str) -> bool:
    """Whether an absolute path is a folder, or something in it."""
    return folder in ("/", path) or path.startswith(f"{folder}/")


def depth_of(path: str) -> int:
    """Return how many folders an absolute path has; 0 for the root."""
    return 0 if path == "/" else path.count("/")


def folded(text: str) -> str:
    """Return one form of names that some file systems take for one: case, composed letters."""
    return unicodedata.normalize("NFD", text).casefold()


def ways_to(path: str) -> list[str]:
    """Return the folders that an absolute path is in, nearest first, `/` last."""
    ways = []
    while path != "/":
        path = path.rpartition("/")[0] or "/"
        ways.append(path)
    return ways


DEFAULT_DEPTH = 16
"""Folders below the last one without a wildcard that are looked into for matches."""

MAX_ENTRIES = 100_000
"""Files and folders that are looked at for one pattern."""

MAX_MATCHES = 512
"""Of one pattern; each costs a mount."""

_WILD = re.compile(r"(\*\*/|\*+|\?)")


class TooMuchToMatch(Exception):
    """A pattern cannot be turned into the paths that it means."""


def is_pattern(text: str) -> bool:
    """Whether a path has wildcards."""
    return any(sign in text for sign in "*?[")


def expression(pattern: str) -> re.Pattern[str]:
    """Return what matches a whole path, as `folded` returns it."""
    return re.compile(expression_text(folded(pattern)), re.DOTALL)


def expression_text(pattern: str) -> str:
    """Return a regular expression of the kind that POSIX calls extended, without `^` and `$`."""
    parts = {"**/": "(.*/)?", "*": "[^/]*", "?": "[^/]"}
    return "".join(
        parts.get(piece, ".*") if _WILD.fullmatch(piece) else re.escape(piece)
        for piece in _WILD.split(pattern)
    )


def real_pattern(pattern: str) -> str:
    """Follow links in the folders before the first wildcard. Blocks."""
    base, rest = _split(pattern)
    return os.path.realpath(base or "/").rstrip("/") + rest


def matches(
    pattern: str,
    depth: int = DEFAULT_DEPTH,
    *,
    max_entries: int = MAX_ENTRIES,
    max_matches: int = MAX_MATCHES,
) -> Sequence[str]:
    """Return the paths that a real pattern matches now; links are not followed. Blocks.

    Raises:
        TooMuchToMatch: there are more than `max_entries` to look at, or more than
            `max_matches` that match.
    """
    whole = expression(pattern)
    found = []
    for number, path in enumerate(_below(_split(pattern)[0] or "/", depth)):
        if number >= max_entries:
            raise TooMuchToMatch(f"`{pattern}` has more than {max_entries} files to look at")
        if whole.fullmatch(folded(path)):
            found.append(path)
            if len(found) > max_matches:
                raise TooMuchToMatch(f"`{pattern}` matches more than {max_matches} files")
    return found


def _split(pattern: str) -> tuple[str, str]:
    """Split at the last slash before the first wildcard."""
    found = re.search(r"[*?]", pattern)
    end = pattern.rfind("/", 0, len(pattern) if found is None else found.start())
    return pattern[:end], pattern[end:]


def _below(base: str, depth: int) -> Iterator[str]:
    limit = depth_of(base) + depth
    for folder, folders, files in os.walk(base):
        if depth_of(folder) + 1 >= limit:
            folders.clear()
        prefix = folder.rstrip("/")
        yield from (f"{prefix}/{name}" for name in (*folders, *files))
