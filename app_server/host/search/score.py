"""Scores of letters in a path: higher for letters together, and at the beginnings of words.

The figures are those of the fuzzy finders that editors have: 16 a letter; for the first letter of a
word 8, of a name 9, of a part in camel case or of a number 5, double for the first letter of the
query; letters behind each other keep the bonus of the first of them, at least 4; a gap costs 3, and
1 for each further letter in it.
Source: https://github.com/junegunn/fzf/blob/master/src/algo/algo.go, "Algorithm".
"""

from collections.abc import Sequence
from typing import TypeAlias

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


def bonus(path: str, place: int) -> int:
    """Return what a letter at a place earns by what stands before it."""
    before = _kind(path[place - 1]) if place else _NAME
    here = _kind(path[place])
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
            for p in _places(query[0], folded, first, last)
        ]
    ]
    for letter, (first, last) in zip(query[1:], windows[1:], strict=True):
        rows.append(_next_row(rows[-1], _places(letter, folded, first, last), path))
    row = rows[-1]
    index = max(range(len(row)), key=lambda i: (row[i][1], -row[i][0]))
    score, places = row[index][1], []
    for row in reversed(rows):
        places.append(row[index][0])
        index = row[index][3]
    return score, places[::-1]


_Cell: TypeAlias = tuple[int, int, int, int]


def _next_row(before: list[_Cell], places: Sequence[int], path: str) -> list[_Cell]:
    """Carry the scores of one letter on to the places of the next one."""
    row: list[_Cell] = []
    cursor, reach, reach_index = 0, -1, -1
    for place in places:
        # The best of all that end before a gap: each further letter costs the same for all.
        while cursor < len(before) and before[cursor][0] < place - 1:
            value = before[cursor][1] + before[cursor][0] * GAP_MORE
            if value > reach:
                reach, reach_index = value, cursor
            cursor += 1
        here = bonus(path, place)
        score, run, index = -1, here, reach_index
        if reach_index >= 0:
            score = max(0, reach - (GAP - 2 * GAP_MORE) - place * GAP_MORE) + here
        if cursor < len(before) and before[cursor][0] == place - 1:
            carried = max(before[cursor][2], TOGETHER)
            if here >= OF_WORD and here > carried:
                carried = here
            together = before[cursor][1] + max(carried, here)
            if together > score:
                score, run, index = together, carried, cursor
        if score >= 0:
            row.append((place, score + LETTER, run, index))
    return row


def _windows(query: str, folded: str) -> list[tuple[int, int]] | None:
    """Return for each letter the first and the last place that it can have."""
    firsts, place = [], -1
    for letter in query:
        place = folded.find(letter, place + 1)
        if place < 0:
            return None
        firsts.append(place)
    lasts, place = [], len(folded)
    for letter in reversed(query):
        place = folded.rfind(letter, 0, place)
        lasts.append(place)
    return list(zip(firsts, reversed(lasts), strict=True))


def _places(letter: str, folded: str, first: int, last: int) -> list[int]:
    places, place = [], first
    while 0 <= place <= last:
        places.append(place)
        place = folded.find(letter, place + 1)
    return places


def best_together(query: str, folded: str, path: str) -> Fit | None:
    """Find the best place for a query whose letters stand behind each other."""
    best: Fit | None = None
    place = folded.find(query)
    while place >= 0:
        fit = at(query, path, place)
        if best is None or fit[0] > best[0]:
            best = fit
        place = folded.find(query, place + 1)
    return best


def at(query: str, path: str, place: int) -> Fit:
    """Score the letters of a query behind each other, from a place on."""
    run = bonus(path, place)
    score = LETTER + run * FIRST_TIMES
    for position in range(place + 1, place + len(query)):
        here = bonus(path, position)
        run = max(run, TOGETHER)
        if here >= OF_WORD and here > run:
            run = here
        score += LETTER + max(run, here)
    return score, range(place, place + len(query))
