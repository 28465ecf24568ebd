"""Sets of letters in patterns of ignore files, as Git reads them: `[a-z]`, `[!.]`, `[[:digit:]]`.

pathspec hands a set to Python as it is. There a backslash is a letter, `[:digit:]` is no class,
`[!a]` fits a slash, and `[z-a]` is an error. So pathspec is shown a NUL in place of each set, which
no name of a file has, and what it makes of the pattern gets the set in Git's sense. A letter is a
character here; in Git it is a byte, so that `[!a]` fits no `é` there. A pattern that has a slash in
a set fits nothing here.
Source: gitignore(5); glob(7).
"""

import re
from collections.abc import Iterator, Mapping, Sequence

CUT = "\0"

CLASSES: Mapping[str, str] = {
    "alnum": "A-Za-z0-9",
    "alpha": "A-Za-z",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": r"!-\~",
    "lower": "a-z",
    "print": r" -\~",
    "punct": r"!-/:-@\[-`{-\~",
    "space": r" \t\n\r",
    "upper": "A-Z",
    "xdigit": "A-Fa-f0-9",
}
"""Insides of Python's sets; Git's classes are those of ASCII."""

_SET = re.compile(
    r"""
    \\.                                             # an escaped letter, which begins no set
    | \[ (?P<negated>[!^]?+)
      (?P<inside>
        # The first letter may be a bracket. One that ends a range begins no class.
        (?> \[:[^]/]*:\] | (?:\\[^/]|[^\\/])  (?:-(?:\\[^/]|[^]\\/]))? )
        (?> \[:[^]/]*:\] | (?:\\[^/]|[^]\\/]) (?:-(?:\\[^/]|[^]\\/]))? )*+
      ) \]
    | (?P<open>\[)
    """,
    re.VERBOSE | re.DOTALL,
)

_PART = re.compile(r"\[:(?P<name>[^]]*):\]|(?P<first>\\?.)(?:-(?P<last>\\?.))?", re.DOTALL)


def cut_sets(line: str) -> tuple[str, Sequence[str]]:
    """Return a pattern with a NUL for each set, and the sets as regular expressions.

    There is no NUL in a line that `read_text` gives.

    Raises:
        ValueError: it has a set without an end, or with a class that there is not: it fits nothing.
    """
    sets: list[str] = []

    def cut(found: re.Match[str]) -> str:
        if found["open"] is not None:
            raise ValueError("a set without an end")
        if found["inside"] is None:
            return found[0]
        parts = "".join(_parts(found["inside"]))
        sets.append(f"(?!/)[{'^' if found['negated'] else ''}{parts}]")
        return CUT

    return _SET.sub(cut, line), sets


def put_sets(regex: str, sets: Sequence[str]) -> str:
    """Put sets, in their order, where they were cut out."""
    for one in sets:
        regex = regex.replace(CUT, one, 1)
    return regex


def _parts(inside: str) -> Iterator[str]:
    for found in _PART.finditer(inside):
        if found["name"] is not None:
            if found["name"] not in CLASSES:
                raise ValueError("no such class of letters")
            yield CLASSES[found["name"]]
            continue
        first = found["first"][-1]
        last = first if found["last"] is None else found["last"][-1]
        yield re.escape(first)
        # A range that runs backwards has its first letter alone.
        if first < last:
            yield f"-{re.escape(last)}"
