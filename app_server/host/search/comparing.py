"""Compares a few letters with many texts: by rapidfuzz, and without it while it is imported.

Source: docs/tools.md, "Host methods"; https://rapidfuzz.github.io/RapidFuzz/.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from app_server.host.search.worker_import import WorkerImport


@dataclass(frozen=True, slots=True)
class Comparing:
    """How many texts at once are compared with a few letters."""

    having: Callable[[str, Sequence[str]], Iterable[int]]
    """Which of the texts have all letters in order."""
    nearest: Callable[[str, Sequence[str], int], Iterable[tuple[float, int]]]
    """So many of the texts that fit best, with how well."""


def with_rapidfuzz() -> Comparing:
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

    return Comparing(having, nearest)


def until_made(comparing: WorkerImport[Comparing]) -> Comparing:
    """Compare without rapidfuzz while it is not imported, and wait for it to choose the nearest."""

    def nearest(letters: str, texts: Sequence[str], count: int) -> Iterable[tuple[float, int]]:
        return comparing.get().nearest(letters, texts, count)

    return comparing.made or Comparing(_having, nearest)


def _having(letters: str, texts: Sequence[str]) -> Iterable[int]:
    in_order = re.compile("".join(f"[^{re.escape(it)}]*+{re.escape(it)}" for it in letters))
    return [index for index, text in enumerate(texts) if in_order.match(text)]


def _first(letters: str, texts: Sequence[str], count: int) -> Iterable[tuple[float, int]]:
    return ((0.0, index) for index in range(min(count, len(texts))))


WITHOUT_RAPIDFUZZ = Comparing(_having, _first)
"""For what is shown while rapidfuzz is imported."""
