"""The best files and folders for a query: candidates by rapidfuzz, their scores and order by ours.

Everything here runs in a worker thread, in steps that leave the interpreter to others in between.
Letters in the name of a file are worth more than any in its path.
Source: docs/tools.md, "Host methods"; https://rapidfuzz.github.io/RapidFuzz/.
"""

import heapq
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from app_server.host.files.work import Stop
from app_server.host.search.listing import Listing, fold
from app_server.host.search.query import MatchMode, Word, parse
from app_server.host.search.score import at, best_scattered
from app_server.host.search.text_matching import TextMatcher

MAX_MATCHES = 50
"""Of one query."""

IN_NAME = 65_536
"""Is added to the score of a file whose name alone has all letters."""

IS_NAME = 131_072
"""Is added to the score of a file or folder whose name is the query."""

MAX_SCORED = 800
"""Candidates that are scored; of more than these, the ones that rapidfuzz finds nearest."""

ENOUGH = 4 * MAX_MATCHES
"""Candidates with letters at beginnings of words; then no others are looked at."""

STEP = 4096
"""Texts that are compared in one call, which others wait for: a millisecond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A file or folder that fits a query."""

    root: str
    path: str
    is_file: bool
    score: int
    indices: Sequence[int]
    """Places of the letters in the path, ascending."""


def rank(
    query: str, listings: Sequence[Listing], matcher: TextMatcher, stop: Stop
) -> Sequence[Match]:
    """Return the best matches of all listings, best first and then by path.

    Raises:
        Stopped: nobody waits any more.
    """
    words = parse(query)
    if not words:
        return ()
    in_name = len(words) == 1 and words[0].mode is MatchMode.SCATTERED
    found: list[Match] = []
    for listing in listings:
        ranking = _Ranking(listing, matcher, stop)
        if in_name:
            found += ranking.by_name(words[0].letters)
        if not in_name or len(found) < MAX_MATCHES:
            found += ranking.by_path(words, without_names=in_name)
    roots = [listing.root for listing in listings]
    alone = (match for match in found if not _is_of_another_root(match, roots))
    best = heapq.nsmallest(MAX_MATCHES, alone, key=_rank)
    return sorted(best, key=lambda match: (-match.score, match.path, match.root))


def _rank(match: Match) -> tuple[int, int, str, str]:
    """Of matches of one score the shortest are the best."""
    return -match.score, len(match.path), match.path, match.root


def _is_of_another_root(match: Match, roots: Sequence[str]) -> bool:
    """Whether a root inside of the match's root has it too."""
    place = f"{match.root}/{match.path}"
    return any(len(root) > len(match.root) and place.startswith(f"{root}/") for root in roots)


class _Ranking:
    def __init__(self, listing: Listing, matcher: TextMatcher, stop: Stop) -> None:
        self._listing = listing
        self._matcher = matcher
        self._stop = stop
        self._named: set[int] = set()
        """Files that fit by their names."""

    def by_name(self, letters: str) -> Iterable[Match]:
        """Find files whose names have the letters, and folders whose names they are."""
        return [*self._folders_of_name(letters), *self._files_by_name(letters)]

    def _folders_of_name(self, letters: str) -> Iterable[Match]:
        count, paths = len(self._listing.files), self._listing.folded_folders
        ending = f"/{letters}"
        found = [i for i, path in enumerate(paths, count) if f"/{path}".endswith(ending)]
        self._named.update(found)
        word = Word(letters, MatchMode.SCATTERED)
        return self._best(self._in_path([word], place, IS_NAME) for place in found)

    def _files_by_name(self, letters: str) -> Iterable[Match]:
        names = self._listing.names
        files = self._listing.files
        first = [place for place, name in enumerate(names) if name.startswith(letters)]
        if len(first) >= MAX_MATCHES:
            # Nothing has a higher score than letters at the beginning of a name.
            first = heapq.nsmallest(
                MAX_MATCHES,
                first,
                key=lambda place: (names[place] != letters, len(files[place]), files[place]),
            )
            return [self._at_beginning(letters, place) for place in first]
        fitting = self._having(letters, names, range(len(names)))
        self._named.update(fitting)
        return self._best(
            self._in_name(letters, place) for place in self._nearest(letters, names, fitting)
        )

    def by_path(self, words: Sequence[Word], *, without_names: bool) -> Iterable[Match]:
        """Find files and folders whose paths fit all words."""
        paths = self._listing.paths
        fitting: Sequence[int] = range(len(paths))
        if without_names:
            fitting = [place for place in fitting if place not in self._named]
        for word in words:
            fitting = self._fitting(word, paths, fitting)
        longest = max(words, key=lambda word: 0 if word.is_negative else len(word.letters))
        return self._best(
            self._in_path(words, place) for place in self._nearest(longest.letters, paths, fitting)
        )

    def _at_beginning(self, letters: str, place: int) -> Match:
        path = self._listing.files[place]
        score, indices = at(letters, path, path.rfind("/") + 1)
        return self._match(place, score + self._of_name(letters, place), indices)

    def _of_name(self, letters: str, place: int) -> int:
        return IN_NAME + (IS_NAME if self._listing.names[place] == letters else 0)

    def _in_name(self, letters: str, place: int) -> Match | None:
        path = self._listing.files[place]
        start = path.rfind("/") + 1
        name = self._listing.names[place]
        fit = best_scattered(letters, name, path[start:])
        if fit is None:
            return None
        score = fit[0] + self._of_name(letters, place)
        return self._match(place, score, [start + index for index in fit[1]])

    def _in_path(self, words: Sequence[Word], place: int, more: int = 0) -> Match | None:
        path = self._listing.path(place)
        folded, score, indices = fold(path), more, set[int]()
        for word in words:
            fit = word.fit(folded, path)
            if fit is None:
                return None
            score += fit[0]
            indices.update(fit[1])
        return self._match(place, score, sorted(indices))

    def _match(self, place: int, score: int, indices: Sequence[int]) -> Match:
        return Match(
            root=self._listing.root,
            path=self._listing.path(place),
            is_file=self._listing.is_file(place),
            score=score,
            indices=indices,
        )

    def _best(self, matches: Iterable[Match | None]) -> Iterable[Match]:
        found = []
        for number, match in enumerate(matches):
            if number % 64 == 0:
                self._stop.check()
            if match is not None:
                found.append(match)
        return heapq.nsmallest(MAX_MATCHES, found, key=_rank)

    def _fitting(self, word: Word, texts: Sequence[str], places: Sequence[int]) -> Sequence[int]:
        letters = word.letters
        if word.mode is MatchMode.SCATTERED:
            return self._having(letters, texts, places)
        self._stop.check()
        if word.is_negative:
            return [p for p in places if word.fit(texts[p], texts[p]) is not None]
        return [p for p in places if letters in texts[p]]

    def _having(self, letters: str, texts: Sequence[str], places: Sequence[int]) -> Sequence[int]:
        """Return the places of texts that have the letters in order."""
        found: list[int] = []
        for step in range(0, len(places), STEP):
            self._stop.check()
            part = places[step : step + STEP]
            if len(letters) == 1:
                found += [place for place in part if letters in texts[place]]
                continue
            having = self._matcher.having(letters, [texts[place] for place in part])
            found += [part[index] for index in having]
        return found

    def _nearest(self, letters: str, texts: Sequence[str], places: Sequence[int]) -> Sequence[int]:
        """Choose the places whose scores are worth working out."""
        if len(places) <= MAX_SCORED:
            return places
        # Letters at beginnings of words, or behind each other: these have the high scores.
        words = _at_words(letters)
        aligned, others = list[int](), list[int]()
        for number, place in enumerate(places):
            if number % STEP == 0:
                self._stop.check()
            (aligned if words.search(texts[place]) else others).append(place)
        if len(aligned) >= ENOUGH:
            return self._near(letters, texts, aligned, MAX_SCORED)
        return [*aligned, *self._near(letters, texts, others, MAX_SCORED - len(aligned))]

    def _near(
        self, letters: str, texts: Sequence[str], places: Sequence[int], count: int
    ) -> Sequence[int]:
        if len(places) <= count:
            return places
        found: list[tuple[float, str, int]] = []
        for step in range(0, len(places), STEP):
            self._stop.check()
            part = places[step : step + STEP]
            nearest = self._matcher.nearest(letters, [texts[place] for place in part], count)
            found += [(-near, texts[part[index]], part[index]) for near, index in nearest]
        return [place for _, _, place in heapq.nsmallest(count, found)]


def _at_words(letters: str) -> re.Pattern[str]:
    """Return what fits texts whose letters are beginnings of words or stand together."""
    first, *rest = map(re.escape, letters)
    return re.compile(rf"(?:^|[\W_]){first}" + "".join(rf"(?:{r}|.*?[\W_]{r})" for r in rest))
