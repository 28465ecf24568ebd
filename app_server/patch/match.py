"""Matching of the hunks of an update in a file, and the updated file. No I/O.

All hunks are found before anything is said about the result. Where a choice of place would change
the result, there is none: it is an error.
Source: docs/tools.md, "Patches".
"""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app_server.patch.parse import Hunk, Lines, NotApplicable

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
"""Forms of a line that are compared, the strictest first: as it is, without white space at its end,
without any around it, and with typographic quotes, dashes and blanks as plain ones."""
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
    """Position of matched lines."""

    at: int
    looseness: int
    """Looseness of the comparison: an index of LOOSENESS."""


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


MAX_SHOWN_CHARS = 10_000
"""Of the lines that were not found."""

MAX_PLACES = 10
"""Matching places that an error about an ambiguous context names."""


def apply_hunks(path: str, text: str, hunks: Sequence[Hunk]) -> str:
    """Return what a file's text becomes; `path` is for errors.

    A line that stays, stays as the file has it. A line that comes gets the line end of its
    neighbour. Whether the file ends with a line feed does not change.

    Raises:
        NotApplicable: a hunk, or its context, is not there, or a context is in several places that
            would give different results.
    """
    file = FileText.of(text)
    finder = _Finder(path, file.lines)
    out: list[str] = []
    done = 0
    for hunk in hunks:
        at, lines = finder.place(hunk)
        out += file.lines[done:at]
        done = _write(lines, file.lines, at, out)
    out += file.lines[done:]
    if not file.ends_with_newline and _is_crlf(file.lines):
        # The last line had no end at all; it gets one if something follows it now.
        out[:-1] = [line if line.endswith("\r") else f"{line}\r" for line in out[:-1]]
        out[-1:] = [line.removesuffix("\r") for line in out[-1:]]
    return FileText(out, file.ends_with_newline, file.mark).joined()


def _is_crlf(lines: Sequence[str]) -> bool:
    return len(lines) > 1 and all(line.endswith("\r") for line in lines[:-1])


def _old(lines: Lines) -> list[str]:
    """Return what the file has to have."""
    return [text for mark, text in lines if mark != "+"]


def _write(lines: Lines, file: Sequence[str], at: int, out: list[str]) -> int:
    """Write a hunk that is at `at`, and return where the file goes on after it."""
    like = file[min(at, len(file) - 1)] if file else ""
    for mark, text in lines:
        if mark == "+":
            out.append(f"{text}\r" if like.endswith("\r") and not text.endswith("\r") else text)
            continue
        like = file[at]
        if mark == " ":
            out.append(like)
        at += 1
    return at


class _Finder:
    """Finds the hunks of one file, each after the one before."""

    def __init__(self, path: str, lines: Sequence[str]) -> None:
        self._path = path
        self._count = len(lines)
        self._index = LineIndex(lines)
        self._after = 0
        """End of the previous hunk."""

    def place(self, hunk: Hunk) -> tuple[int, Lines]:
        """Return where a hunk begins, and its lines: perhaps without empty ones at its end."""
        starts = self._starts(hunk.contexts)
        lines = hunk.lines
        while True:
            old = _old(lines)
            at = self._place(hunk, old, starts)
            if at is not None:
                self._after = at + len(old)
                return at, lines
            # Models end a hunk with an empty line that the file does not have.
            if len(lines) < 2 or lines[-1] != (" ", ""):
                wanted = "\n".join(_old(hunk.lines))[:MAX_SHOWN_CHARS]
                raise NotApplicable(f"Failed to find expected lines in {self._path}:\n{wanted}")
            lines = lines[:-1]

    def _starts(self, contexts: Sequence[str]) -> list[int]:
        """Return where the lines of a hunk may begin: behind each place of its first context.

        Of the contexts that follow the first, each is where it is first behind the one before.
        """
        if not contexts:
            return [self._after]
        places = self._index.all_of(contexts[0], self._after)
        if not places:
            raise self._without(contexts[0])
        starts = [place + 1 for place in places]
        for context in contexts[1:]:
            inner = [self._index.find([context], start) for start in starts]
            starts = list(dict.fromkeys(found.at + 1 for found in inner if found is not None))
            if not starts:
                raise self._without(context)
        return starts

    def _without(self, context: str) -> NotApplicable:
        return NotApplicable(f"Failed to find context '{context}' in {self._path}")

    def _place(self, hunk: Hunk, old: Sequence[str], starts: Sequence[int]) -> int | None:
        if not old:
            if hunk.at_end or not hunk.contexts:
                return self._count
            if len(starts) > 1:
                raise self._ambiguous(hunk, starts)
            return starts[0]
        first = self._index.find(old, starts[0], only_at_end=hunk.at_end)
        if first is None:
            return None
        # From a start that is not behind it the same place would be found.
        later = next((start for start in starts if start > first.at), None)
        if later is not None and self._index.find(old, later, loosest=first.looseness) is not None:
            raise self._ambiguous(hunk, starts)
        return first.at

    def _ambiguous(self, hunk: Hunk, starts: Sequence[int]) -> NotApplicable:
        more = "…" if len(starts) > MAX_PLACES else ""
        places = ", ".join(map(str, starts[:MAX_PLACES])) + more
        return NotApplicable(
            f"Context '{hunk.contexts[0]}' is in several places of {self._path} (lines {places}), "
            "and the change fits more than one of them. Add lines around the change, or a context "
            "that is there once"
        )
