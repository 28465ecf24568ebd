"""Texts of messages: matches of a term, and the excerpt around one. No I/O.

Source: docs/wire.md, "History and search".
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

from protocol.turns.items import (
    AgentMessageThreadItem,
    ThreadItem,
    UserMessageThreadItem,
    text_of_input,
)


def text_of(item: ThreadItem | None) -> str:
    """Return what was said in an item; empty if it is no message."""
    match item:
        case UserMessageThreadItem(content=content):
            return text_of_input(content)
        case AgentMessageThreadItem(text=text):
            return text
    return ""


BEFORE_CHARS = 48
AFTER_CHARS = 96
_SPACE = re.compile(r"\s+")


class Excerpt(NamedTuple):
    """A piece of text on one line; `start` and `end` say where the match is, in code points."""

    text: str
    start: int
    end: int

    @property
    def utf16_range(self) -> tuple[int, int]:
        """Range of the match, in UTF-16 code units."""
        return _units(self.text[: self.start]), _units(self.text[: self.end])


def matches(text: str, term: str) -> Iterator[tuple[int, int]]:
    """Walk the places of a case-folded term in a text, none overlapping the one before."""
    folded = text.casefold()
    at = folded.find(term)
    if at < 0 or not term:
        return
    origin = range(len(text)) if len(folded) == len(text) else _origins(text)
    while at >= 0:
        end = at + len(term)
        yield origin[at], origin[end - 1] + 1
        at = folded.find(term, end)


def excerpt(text: str, start: int, end: int) -> Excerpt:
    """Cut a text down to what is around a match; white space becomes single spaces."""
    before, after = text[max(0, start - BEFORE_CHARS) : start], text[end : end + AFTER_CHARS]
    before = ("... " if start > BEFORE_CHARS else "") + _SPACE.sub(" ", before)
    match = _SPACE.sub(" ", text[start:end])
    after = _SPACE.sub(" ", after) + (" ..." if end + AFTER_CHARS < len(text) else "")
    before = before.lstrip()
    return Excerpt(f"{before}{match}{after.rstrip()}", len(before), len(before) + len(match))


def _origins(text: str) -> list[int]:
    """Say for each character of the folded text which character it comes from."""
    return [place for place, char in enumerate(text) for _ in char.casefold()]


def _units(text: str) -> int:
    return len(text.encode("utf-16-le", "surrogatepass")) // 2
