"""The best files and folders for a query: candidates by rapidfuzz, their scores and order by ours.

From top to bottom: scores of letters in a path, higher for letters together and at the beginnings
of words; the words of a query, each of which a path must match; the order of the candidates. `word`
fits scattered letters, `'word` and `!word` letters together (`!` means: not), `^word` at the
beginning, `word$` at the end. A backslash before a space or a sign takes its meaning away. Letters
in the name of a file are worth more than any in its path.

The figures are those of the fuzzy finders that editors have: 16 a letter; for the first letter of a
word 8, of a name 9, of a part in camel case or of a number 5, double for the first letter of the
query; letters behind each other keep the bonus of the first of them, at least 4; a gap costs 3, and
1 for each further letter in it.

`rank` runs in a worker thread, in steps that leave the interpreter to others in between.
Source: docs/tools.md, "Host methods"; https://github.com/junegunn/fzf, "Search syntax"; https://rapidfuzz.github.io/RapidFuzz/.
"""

import heapq
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from rapidfuzz import fuzz, process
from rapidfuzz.distance import LCSseq

from app_server.host.files.work import Stop
from app_server.host.search.listing import Listing, fold

LETTER = 16
GAP = 3
GAP_MORE = 1
OF_WORD = 8
OF_NAME = 9
OF_PART = 5
TOGETHER = 4
FIRST_TIMES = 2

Fit: TypeAlias = tuple[int, Sequence[int]]
"""The score, and the places of the letters in the path, ascending."""

_NAME, _NONE, _LOWER, _UPPER, _OTHER, _DIGIT = range(6)


def bonus(path: str, position: int) -> int:
    """Return the bonus of a letter, which depends on the letter before it."""
    before = _kind(path[position - 1]) if position else _NAME
    here = _kind(path[position])
    if here > _NONE:
        if before == _NAME:
            return OF_NAME
        if before == _NONE:
            return OF_WORD
        is_part = (before == _LOWER and here == _UPPER) or (before != _DIGIT and here == _DIGIT)
        return OF_PART if is_part else 0
    if here == _NAME:
        return OF_NAME if before == _NAME else OF_WORD if before == _NONE else 0
    return OF_WORD


def _kind(letter: str) -> int:
    if "a" <= letter <= "z":
        return _LOWER
    if letter == "/":
        return _NAME
    if "0" <= letter <= "9":
        return _DIGIT
    if letter.isupper():
        return _UPPER
    if letter.islower():
        return _LOWER
    if letter.isalpha():
        return _OTHER
    return _DIGIT if letter.isnumeric() else _NONE


def best_scattered(query: str, folded: str, path: str) -> Fit | None:
    """Find the best places for the letters of a query, in order.

    `query` and `folded` are folded, `path` is the same text as it is written.
    """
    windows = _windows(query, folded)
    if windows is None:
        return None
    first, last = windows[0]
    # For each place of the letter: score, bonus of the run, index of the place before it.
    rows = [
        [
            (p, (b := bonus(path, p)) * FIRST_TIMES + LETTER, b, -1)
            for p in _positions(query[0], folded, first, last)
        ]
    ]
    for letter, (first, last) in zip(query[1:], windows[1:], strict=True):
        rows.append(_next_row(rows[-1], _positions(letter, folded, first, last), path))
    row = rows[-1]
    index = max(range(len(row)), key=lambda i: (row[i][1], -row[i][0]))
    score, positions = row[index][1], []
    for row in reversed(rows):
        positions.append(row[index][0])
        index = row[index][3]
    return score, positions[::-1]


_Cell: TypeAlias = tuple[int, int, int, int]


def _next_row(before: list[_Cell], positions: Sequence[int], path: str) -> list[_Cell]:
    """Carry the scores of one letter on to the places of the next one."""
    row: list[_Cell] = []
    cursor, reach, reach_index = 0, -1, -1
    for position in positions:
        # The best of all that end before a gap: each further letter costs the same for all.
        while cursor < len(before) and before[cursor][0] < position - 1:
            value = before[cursor][1] + before[cursor][0] * GAP_MORE
            if value > reach:
                reach, reach_index = value, cursor
            cursor += 1
        here = bonus(path, position)
        score, run, index = -1, here, reach_index
        if reach_index >= 0:
            score = max(0, reach - (GAP - 2 * GAP_MORE) - position * GAP_MORE) + here
        if cursor < len(before) and before[cursor][0] == position - 1:
            carried = max(before[cursor][2], TOGETHER)
            if here >= OF_WORD and here > carried:
                carried = here
            together = before[cursor][1] + max(carried, here)
            if together > score:
                score, run, index = together, carried, cursor
        if score >= 0:
            row.append((position, score + LETTER, run, index))
    return row


def _windows(query: str, folded: str) -> list[tuple[int, int]] | None:
    """Return for each letter the first and the last place that it can have."""
    firsts, position = [], -1
    for letter in query:
        position = folded.find(letter, position + 1)
        if position < 0:
            return None
        firsts.append(position)
    lasts, position = [], len(folded)
    for letter in reversed(query):
        position = folded.rfind(letter, 0, position)
        lasts.append(position)
    return list(zip(firsts, reversed(lasts), strict=True))


def _positions(letter: str, folded: str, first: int, last: int) -> list[int]:
    positions, position = [], first
    while 0 <= position <= last:
        positions.append(position)
        position = folded.find(letter, position + 1)
    return positions


def best_together(query: str, folded: str, path: str) -> Fit | None:
    """Find the best place for a query whose letters stand behind each other."""
    best: Fit | None = None
    position = folded.find(query)
    while position >= 0:
        fit = at(query, path, position)
        if best is None or fit[0] > best[0]:
            best = fit
        position = folded.find(query, position + 1)
    return best


def at(query: str, path: str, position: int) -> Fit:
    """Score the letters of a query behind each other, from a place on."""
    run = bonus(path, position)
    score = LETTER + run * FIRST_TIMES
    for index in range(position + 1, position + len(query)):
        here = bonus(path, index)
        run = max(run, TOGETHER)
        if here >= OF_WORD and here > run:
            run = here
        score += LETTER + max(run, here)
    return score, range(position, position + len(query))


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
        """Score a path; None without a match. A negative word earns nothing."""
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


def rank(query: str, listings: Sequence[Listing], stop: Stop) -> Sequence[Match]:
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
        ranking = _Ranking(listing, stop)
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
    full = f"{match.root}/{match.path}"
    return any(len(root) > len(match.root) and full.startswith(f"{root}/") for root in roots)


class _Ranking:
    def __init__(self, listing: Listing, stop: Stop) -> None:
        self._listing = listing
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
        return self._best(self._in_path([word], position, IS_NAME) for position in found)

    def _files_by_name(self, letters: str) -> Iterable[Match]:
        names = self._listing.names
        files = self._listing.files
        first = [position for position, name in enumerate(names) if name.startswith(letters)]
        if len(first) >= MAX_MATCHES:
            # Nothing has a higher score than letters at the beginning of a name.
            first = heapq.nsmallest(
                MAX_MATCHES,
                first,
                key=lambda position: (
                    names[position] != letters,
                    len(files[position]),
                    files[position],
                ),
            )
            return [self._at_beginning(letters, position) for position in first]
        fitting = self._having(letters, names, range(len(names)))
        self._named.update(fitting)
        return self._best(
            self._in_name(letters, position) for position in self._nearest(letters, names, fitting)
        )

    def by_path(self, words: Sequence[Word], *, without_names: bool) -> Iterable[Match]:
        """Find files and folders whose paths fit all words."""
        paths = self._listing.paths
        fitting: Sequence[int] = range(len(paths))
        if without_names:
            fitting = [position for position in fitting if position not in self._named]
        for word in words:
            fitting = self._fitting(word, paths, fitting)
        longest = max(words, key=lambda word: 0 if word.is_negative else len(word.letters))
        return self._best(
            self._in_path(words, position)
            for position in self._nearest(longest.letters, paths, fitting)
        )

    def _at_beginning(self, letters: str, position: int) -> Match:
        path = self._listing.files[position]
        score, indices = at(letters, path, path.rfind("/") + 1)
        return self._match(position, score + self._of_name(letters, position), indices)

    def _of_name(self, letters: str, position: int) -> int:
        return IN_NAME + (IS_NAME if self._listing.names[position] == letters else 0)

    def _in_name(self, letters: str, position: int) -> Match | None:
        path = self._listing.files[position]
        start = path.rfind("/") + 1
        name = self._listing.names[position]
        fit = best_scattered(letters, name, path[start:])
        if fit is None:
            return None
        score = fit[0] + self._of_name(letters, position)
        return self._match(position, score, [start + index for index in fit[1]])

    def _in_path(self, words: Sequence[Word], position: int, more: int = 0) -> Match | None:
        path = self._listing.path(position)
        folded, score, indices = fold(path), more, set[int]()
        for word in words:
            fit = word.fit(folded, path)
            if fit is None:
                return None
            score += fit[0]
            indices.update(fit[1])
        return self._match(position, score, sorted(indices))

    def _match(self, position: int, score: int, indices: Sequence[int]) -> Match:
        return Match(
            root=self._listing.root,
            path=self._listing.path(position),
            is_file=self._listing.is_file(position),
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

    def _fitting(self, word: Word, texts: Sequence[str], positions: Sequence[int]) -> Sequence[int]:
        letters = word.letters
        if word.mode is MatchMode.SCATTERED:
            return self._having(letters, texts, positions)
        self._stop.check()
        if word.is_negative:
            return [p for p in positions if word.fit(texts[p], texts[p]) is not None]
        return [p for p in positions if letters in texts[p]]

    def _having(
        self, letters: str, texts: Sequence[str], positions: Sequence[int]
    ) -> Sequence[int]:
        """Return the places of texts that have the letters in order."""
        found: list[int] = []
        for step in range(0, len(positions), STEP):
            self._stop.check()
            part = positions[step : step + STEP]
            if len(letters) == 1:
                found += [position for position in part if letters in texts[position]]
                continue
            having = process.extract(
                letters,
                [texts[position] for position in part],
                scorer=LCSseq.similarity,
                score_cutoff=len(letters),
                limit=None,
            )
            found += [part[index] for index in sorted(index for _, _, index in having)]
        return found

    def _nearest(
        self, letters: str, texts: Sequence[str], positions: Sequence[int]
    ) -> Sequence[int]:
        """Choose the places whose scores are worth working out."""
        if len(positions) <= MAX_SCORED:
            return positions
        # Letters at beginnings of words, or behind each other: these have the high scores.
        words = _at_words(letters)
        aligned, others = list[int](), list[int]()
        for number, position in enumerate(positions):
            if number % STEP == 0:
                self._stop.check()
            (aligned if words.search(texts[position]) else others).append(position)
        if len(aligned) >= ENOUGH:
            return self._near(letters, texts, aligned, MAX_SCORED)
        return [*aligned, *self._near(letters, texts, others, MAX_SCORED - len(aligned))]

    def _near(
        self, letters: str, texts: Sequence[str], positions: Sequence[int], count: int
    ) -> Sequence[int]:
        if len(positions) <= count:
            return positions
        found: list[tuple[float, str, int]] = []
        for step in range(0, len(positions), STEP):
            self._stop.check()
            part = positions[step : step + STEP]
            nearest = process.extract(
                letters,
                [texts[position] for position in part],
                scorer=fuzz.partial_ratio,
                limit=count,
            )
            found += [(-score, text, part[index]) for text, score, index in nearest]
        return [position for _, _, position in heapq.nsmallest(count, found)]


def _at_words(letters: str) -> re.Pattern[str]:
    """Return the texts whose letters begin words or stand together."""
    first, *rest = map(re.escape, letters)
    return re.compile(rf"(?:^|[\W_]){first}" + "".join(rf"(?:{r}|.*?[\W_]{r})" for r in rest))
