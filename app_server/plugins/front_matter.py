"""What stands between the two `---` at the head of a SKILL.md: the little YAML that skills use.

Read are members in a line of their own, quoted or not, texts over several lines, and members one
level below another, as `metadata.short-description`. Lists and flow style are passed over.
Source: docs/config.md, "Skills".
"""

import json
import re
from collections.abc import Iterator, Mapping

from app_server.plugins.files import BrokenFiles

FENCE = "---"

_MEMBER = re.compile(r"([A-Za-z0-9_-]+)[ \t]*:(?:[ \t]+(.*))?$")
_COMMENT = re.compile(r"(?:^|[ \t])#.*$")
_BLOCK = re.compile(r"[|>][+-]?[0-9]?[+-]?$")
_QUOTED = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')[ \t]*(?:#.*)?$""")


def read_front_matter(text: str) -> Mapping[str, str]:
    """Return the members by name, nested ones by dotted name; blanks in a text count as one.

    Raises:
        BrokenFiles: the text does not begin with front matter, or that has no end.
    """
    lines = text.splitlines()
    if not lines or lines[0].strip() != FENCE:
        raise BrokenFiles("missing YAML frontmatter delimited by ---")
    ends = (number for number, line in enumerate(lines[1:], start=1) if line.strip() == FENCE)
    end = next(ends, None)
    if end is None:
        raise BrokenFiles("missing YAML frontmatter delimited by ---")
    return dict(_members(lines[1:end]))


def _members(lines: list[str]) -> Iterator[tuple[str, str]]:
    number = 0
    while number < len(lines):
        found = _MEMBER.match(lines[number])
        number += 1
        if found is None:
            continue
        below = []
        while number < len(lines) and (not lines[number].strip() or lines[number][0] in " \t"):
            below.append(lines[number].strip())
            number += 1
        name, value = found[1], found[2] or ""
        nested = list(_nested(below)) if not _plain(value) else []
        if nested:
            yield from ((f"{name}.{inner}", text) for inner, text in nested)
        else:
            yield name, _text(value, below)


def _nested(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        if (found := _MEMBER.match(line)) is not None:
            yield found[1], _text(found[2] or "", [])


def _text(value: str, below: list[str]) -> str:
    if _BLOCK.match(_plain(value)):
        return _one_line(" ".join(below))
    if (quoted := _QUOTED.match(value)) is not None:
        return _one_line(_unquoted(quoted[1]))
    return _one_line(" ".join([_plain(value), *map(_plain, below)]))


def _plain(value: str) -> str:
    return _COMMENT.sub("", value).strip()


def _unquoted(text: str) -> str:
    if text.startswith("'"):
        return text[1:-1].replace("''", "'")
    try:
        # The escapes that are likely are those of JSON.
        return str(json.loads(text, strict=False))
    except ValueError:
        return text[1:-1]


def _one_line(text: str) -> str:
    return " ".join(text.split())
