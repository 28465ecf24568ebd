"""Patterns of ignore files as regular expressions, as Git means them.

Git compares bytes: `?` and `[!a]` fit half of an `é`. So the expressions are for texts in which
each letter is a byte, see `as_bytes`. What a star has passed over is in an atomic group wherever
another length could not help: so no pattern takes long.
Source: gitignore(5); glob(7).
"""

import re
from collections.abc import Iterator, Mapping

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

_TOKEN = re.compile(
    r"""
    (?P<plain>[^*?\[\\]+)
    | (?P<stars>\*+) (?P<slash>/?)
    | (?P<any>\?)
    | \\ (?P<escaped>.)
    | \[ (?P<negated>[!^]?+)
      (?P<inside>
        # The first letter may be a bracket. One that ends a range begins no class.
        (?> \[:[^]]*:\] | (?:\\.|[^\\])  (?:-(?:\\.|[^]\\]))? )
        (?> \[:[^]]*:\] | (?:\\.|[^]\\]) (?:-(?:\\.|[^]\\]))? )*+
      ) \]
    | (?P<without_end>.)
    """,
    re.VERBOSE | re.DOTALL,
)

_PART = re.compile(r"\[:(?P<name>[^]]*):\]|(?P<first>\\?.)(?:-(?P<last>\\?.))?", re.DOTALL)

_ANY = "[^/]*"
_FOLDERS = "(?:[^/]*/)*"


def as_bytes(text: str) -> str:
    """Return a text with a letter for each byte; surrogates in `text` are bytes outside UTF-8."""
    return text if text.isascii() else text.encode(errors="surrogateescape").decode("latin-1")


def expression(pattern: str) -> str:
    """Return what fits, as a whole, the paths that a pattern is about, as `as_bytes` has them.

    The pattern comes without `!`, and without the slash behind it that wants a folder.

    Raises:
        ValueError: it has a set without an end, one with a class that there is not, or a backslash
            at its end: it fits nothing.
    """
    is_path = "/" in pattern
    out = [] if is_path else [_FOLDERS]
    pattern = as_bytes(pattern.removeprefix("/"))
    star = folders = None
    """Indexes in `out` of the `*` and `**` whose groups are open."""
    for found in _TOKEN.finditer(pattern):
        if not found["stars"]:
            out.append(_letters(found))
            continue
        is_wide = is_path and _is_wide(pattern, found)
        if star is not None:
            out.append(")")
        if is_wide and folders is not None:
            out.append(")")
        if not is_wide:
            star = len(out)
            out += [f"(?>{_ANY}?", found["slash"]]
        elif found["slash"]:
            star, folders = None, len(out)
            out.append(f"(?>{_FOLDERS}?")
        else:
            star = folders = None
            out.append(".*")
    # The last ones have to reach to the end, whichever lengths that takes.
    if star is not None:
        out[star] = _ANY
    if folders is not None:
        out[folders] = _FOLDERS
    return "".join(out)


def _letters(found: re.Match[str]) -> str:
    if found["without_end"]:
        raise ValueError("a set or an escape without an end")
    if found["any"]:
        return "[^/]"
    if found["inside"]:
        return f"(?!/)[{'^' if found['negated'] else ''}{''.join(_parts(found['inside']))}]"
    return re.escape(found["plain"] or found["escaped"])


def _is_wide(pattern: str, stars: re.Match[str]) -> bool:
    """Whether stars fit slashes too: two, with nothing beside them, or after letters alone."""
    literal = re.match(r"[^*?\[\\]*", pattern)
    assert literal is not None
    begins = stars.start() == literal.end() or pattern[stars.start() - 1] == "/"
    ends = stars["slash"] or pattern[stars.end() :][:2] in ("", "\\/")
    return len(stars["stars"]) > 1 and begins and bool(ends)


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
