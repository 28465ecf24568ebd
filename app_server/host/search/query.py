"""The query of a file search: words, each of which a path must match.

`word` fits scattered letters, `'word` and `!word` letters together (`!` means: not), `^word` at the
beginning, `word$` at the end. A backslash before a space or a sign takes its meaning away.
Source: https://github.com/junegunn/fzf, "Search syntax"; docs/tools.md, "Host methods".
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from app_server.host.search.listing import fold
from app_server.host.search.score import Fit, at, best_scattered, best_together

MAX_CHARS = 512
"""Of a query; what is longer fits nothing."""

MAX_WORDS = 16
"""Of a query; those after them are passed over."""

_WORD = re.compile(r"(?:\\\s|\S)+")


class MatchMode(Enum):
    """The way that a word matches a path."""

    SCATTERED = "scattered"
    TOGETHER = "together"
    AT_START = "at start"
    AT_END = "at end"
    WHOLE = "whole"


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a query."""

    letters: str
    """Folded."""
    mode: MatchMode
    is_negative: bool = False

    def fit(self, folded: str, path: str) -> Fit | None:
        """Score a path; None where it does not fit. A negative word earns nothing."""
        found = self._find(folded, path)
        if self.is_negative:
            return (0, ()) if found is None else None
        return found

    def _find(self, folded: str, path: str) -> Fit | None:
        letters = self.letters
        match self.mode:
            case MatchMode.SCATTERED:
                return best_scattered(letters, folded, path)
            case MatchMode.TOGETHER:
                return best_together(letters, folded, path)
            case MatchMode.AT_START:
                return at(letters, path, 0) if folded.startswith(letters) else None
            case MatchMode.AT_END:
                start = len(folded) - len(letters)
                return at(letters, path, start) if folded.endswith(letters) else None
            case MatchMode.WHOLE:
                return at(letters, path, 0) if folded == letters else None


def parse(query: str) -> Sequence[Word]:
    """Return the words of a query; none if it is empty or too long."""
    if len(query) > MAX_CHARS:
        return ()
    words = (_parse_word(text) for text in _WORD.findall(query))
    return [word for word in words if word.letters][:MAX_WORDS]


def _parse_word(text: str) -> Word:
    is_negative = text.startswith("!")
    text = text[1:] if is_negative else text
    mode = MatchMode.TOGETHER if is_negative else MatchMode.SCATTERED
    if text.startswith("'"):
        mode, text = MatchMode.TOGETHER, text[1:]
    elif text.startswith("^"):
        mode, text = MatchMode.AT_START, text[1:]
    if text.endswith("$") and not text.endswith("\\$"):
        mode, text = MatchMode.WHOLE if mode is MatchMode.AT_START else MatchMode.AT_END, text[:-1]
    return Word(fold(re.sub(r"\\([\s!'^$])", r"\1", text)), mode, is_negative)
