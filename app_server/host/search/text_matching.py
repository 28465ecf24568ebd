"""Compares a few letters with many texts: by rapidfuzz, and without it while it is imported.

Source: docs/tools.md, "Host methods"; docs/architecture.md, "What is loaded late"; https://rapidfuzz.github.io/RapidFuzz/.
"""

import contextlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from app_server.runtime.loader import IMPORTER, LoadFailed, load_from_worker


@dataclass(frozen=True, slots=True)
class TextMatcher:
    """Functions that match texts with a few letters."""

    having: Callable[[str, Sequence[str]], Iterable[int]]
    """Which of the texts have all letters in order."""
    nearest: Callable[[str, Sequence[str], int], Iterable[tuple[float, int]]]
    """So many of the texts that fit best, with how well."""


def with_rapidfuzz() -> TextMatcher:
    """Import rapidfuzz."""
    from rapidfuzz import fuzz, process
    from rapidfuzz.distance import LCSseq

    def having(letters: str, texts: Sequence[str]) -> Iterable[int]:
        found = process.extract(
            letters, texts, scorer=LCSseq.similarity, score_cutoff=len(letters), limit=None
        )
        return sorted(index for _, _, index in found)

    def nearest(letters: str, texts: Sequence[str], count: int) -> Iterable[tuple[float, int]]:
        found = process.extract(letters, texts, scorer=fuzz.partial_ratio, limit=count)
        return ((score, index) for _, score, index in found)

    return TextMatcher(having, nearest)


def _having(letters: str, texts: Sequence[str]) -> Iterable[int]:
    in_order = re.compile("".join(f"[^{re.escape(it)}]*+{re.escape(it)}" for it in letters))
    return [index for index, text in enumerate(texts) if in_order.match(text)]


def _first(letters: str, texts: Sequence[str], count: int) -> Iterable[tuple[float, int]]:
    return ((0.0, index) for index in range(min(count, len(texts))))


WITHOUT_RAPIDFUZZ = TextMatcher(_having, _first)
"""For what is shown while rapidfuzz is imported."""


class LazyRapidfuzz:
    """Compares by rapidfuzz once that is imported, and without it before."""

    def __init__(self, make: Callable[[], TextMatcher] = with_rapidfuzz) -> None:
        """`make` imports it."""
        self._make = make
        self._made: TextMatcher | None = None

    def begin(self) -> None:
        """Start its import, without waiting; the next use tries again what fails."""
        if self._made is None:
            with contextlib.suppress(LoadFailed):
                IMPORTER.request(self._once)

    def at_once(self) -> TextMatcher:
        """Return what never waits."""
        return self._made or WITHOUT_RAPIDFUZZ

    def matcher(self) -> TextMatcher:
        """Return what waits for it, in a worker thread, to choose the nearest."""
        return self._made or TextMatcher(_having, self._nearest)

    def _nearest(
        self, letters: str, texts: Sequence[str], count: int
    ) -> Iterable[tuple[float, int]]:
        return load_from_worker(self._once).nearest(letters, texts, count)

    def _once(self) -> TextMatcher:
        # The importer has one thread: nobody else is here.
        if self._made is None:
            self._made = self._make()
        return self._made
