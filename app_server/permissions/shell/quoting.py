"""Words as clients are shown them: with quotes where a shell needs them. For display alone. No I/O.

A word is cut into stretches, each as long as one kind of quotes can hold. It is what clients of the
reference see.
Source: docs/tools.md, "Commands".
"""

from collections.abc import Iterable, Iterator
from typing import Literal, TypeAlias

_Kind: TypeAlias = Literal["plain", "single", "double"]

_KINDS: tuple[_Kind, ...] = ("plain", "single", "double")
"""The first that holds a stretch is taken."""

_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+-./:@]_")
_NOT_IN_SINGLE = frozenset("'\\^")
_NOT_IN_DOUBLE = frozenset("`$!^")


def shown(words: Iterable[str]) -> str:
    """Write words as a shell would read them."""
    return " ".join(map(quoted, words))


def quoted(word: str) -> str:
    """Write one word as a shell would read it."""
    return "".join(_written(text, kind) for text, kind in _stretches(word)) or "''"


def _stretches(word: str) -> Iterator[tuple[str, _Kind]]:
    start = 0
    while start < len(word):
        end = start
        kinds: tuple[_Kind, ...] = _KINDS
        while end < len(word):
            left = tuple(kind for kind in kinds if _holds(kind, word[end], is_first=end == start))
            if not left:
                break
            kinds, end = left, end + 1
        yield word[start:end], kinds[0]
        start = end


def _holds(kind: _Kind, char: str, *, is_first: bool) -> bool:
    match kind:
        case "plain":
            return char in _PLAIN
        case "single":
            return char not in _NOT_IN_SINGLE or (char == "^" and is_first)
        case "double":
            return char not in _NOT_IN_DOUBLE


def _written(text: str, kind: _Kind) -> str:
    match kind:
        case "plain":
            return text
        case "single":
            return f"'{text}'"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
