"""The text of a file as lines, and how loosely a line of a patch may match one of them. No I/O.

Source: docs/tools.md, "Patches".
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

_TYPOGRAPHIC = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
        **dict.fromkeys("\u2018\u2019\u201a\u201b", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f", '"'),
        **dict.fromkeys(
            "\u00a0\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "
        ),
    }
)


def _same(line: str) -> str:
    return line


def _folded(line: str) -> str:
    return line.translate(_TYPOGRAPHIC).strip()


LOOSENESS: Sequence[Callable[[str], str]] = (_same, str.rstrip, str.strip, _folded)
"""What is compared, the strictest first: the line, without white space at its end, without any
around it, and with typographic quotes, dashes and blanks as plain ones."""
LOOSEST = len(LOOSENESS) - 1


@dataclass(frozen=True, slots=True)
class FileText:
    """The lines of a file, each without its line feed, but with a carriage return if it has one."""

    lines: list[str]
    ends_with_newline: bool = True
    mark: str = ""
    """The byte order mark in front, if there is one."""

    @classmethod
    def of(cls, text: str) -> "FileText":
        """Take a text apart."""
        mark = "\ufeff" if text.startswith("\ufeff") else ""
        text = text.removeprefix("\ufeff")
        lines = text.split("\n")
        if lines[-1] == "":
            lines.pop()
            return cls(lines, True, mark)
        return cls(lines, False, mark)

    def joined(self) -> str:
        """Put the text together."""
        end = "\n" if self.ends_with_newline and self.lines else ""
        return self.mark + "\n".join(self.lines) + end


@dataclass(frozen=True, slots=True)
class Found:
    """Where lines are."""

    at: int
    looseness: int
    """How they had to be compared: an index of LOOSENESS."""


class LineIndex:
    """Finds lines of one file. What is compared is prepared once for each looseness."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._prepared: dict[int, _Prepared] = {}

    def find(
        self,
        wanted: Sequence[str],
        start: int,
        *,
        only_at_end: bool = False,
        loosest: int = LOOSEST,
    ) -> Found | None:
        """Return where `wanted`, at least a line, is first, not before `start`.

        It is compared as strictly as it can be found; not more loosely than `loosest`.
        """
        if only_at_end:
            start = max(start, len(self._lines) - len(wanted))
        for looseness in range(loosest + 1):
            if (at := self._prepare(looseness).first(wanted, start)) is not None:
                return Found(at, looseness)
        return None

    def all_of(self, line: str, start: int) -> list[int]:
        """Return all places of one line, not before `start`, as strictly as it can be found."""
        first = self.find([line], start)
        if first is None:
            return []
        places = self._prepare(first.looseness).places_of(line)
        return places[bisect_left(places, first.at) :]

    def _prepare(self, looseness: int) -> "_Prepared":
        if looseness not in self._prepared:
            self._prepared[looseness] = _Prepared(self._lines, LOOSENESS[looseness])
        return self._prepared[looseness]


class _Prepared:
    """The lines of a file as they are compared, and where each of them is."""

    def __init__(self, lines: Sequence[str], prepare: Callable[[str], str]) -> None:
        self._prepare = prepare
        self._lines = list(map(prepare, lines))
        self._places: dict[str, list[int]] = {}
        for at, line in enumerate(self._lines):
            self._places.setdefault(line, []).append(at)

    def places_of(self, line: str) -> list[int]:
        return self._places.get(self._prepare(line), [])

    def first(self, wanted: Sequence[str], start: int) -> int | None:
        """Look only where the rarest of the lines is."""
        places = list(map(self.places_of, wanted))
        rarest = min(range(len(wanted)), key=lambda index: len(places[index]))
        pattern = list(map(self._prepare, wanted))
        for place in places[rarest][bisect_left(places[rarest], start + rarest) :]:
            at = place - rarest
            if self._lines[at : at + len(pattern)] == pattern:
                return at
        return None
