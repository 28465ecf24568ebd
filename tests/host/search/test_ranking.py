"""host.search: what fits a query, in which order, with which scores.

The scores of the first table were observed on Codex 0.169.0.
"""

import random
from collections.abc import Sequence
from typing import TypeAlias

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app_server.host.files.work import Stop, Stopped
from app_server.host.search.listing import Listing, fold
from app_server.host.search.ranking import (
    MAX_MATCHES,
    MAX_SCORED,
    MatchMode,
    Word,
    best_scattered,
    parse,
    rank,
)
from tests.support.harness import claim

FILES = [
    ".hid/main.rs",
    "src/main.py",
    "src/deep/MainView.tsx",
    "sp ace main.txt",
    "ünï_main.c",
    "foo_bar.py",
    "foobar.py",
    "FooBar.py",
    "xfoobar.py",
    "fo.o",
    "inner/r.txt",
]
FOLDERS = [".hid", "src", "src/deep", "inner"]


Found: TypeAlias = list[tuple[int, str, list[int]]]


def listing(root: str, files: Sequence[str], folders: Sequence[str]) -> Listing:
    names: dict[str, list[str]] = {"": [], **{f"{folder}/": [] for folder in folders}}
    for file in files:
        folder, slash, name = file.rpartition("/")
        names.setdefault(folder + slash, []).append(name)
    return Listing(root, names.items())


def found(query: str, files: Sequence[str] = FILES, folders: Sequence[str] = FOLDERS) -> Found:
    matches = rank(query, [listing("/r", files, folders)], Stop())
    return [(match.score, match.path, list(match.indices)) for match in matches]


@claim("search-files:scores")
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (
            "main",
            [
                (65645, ".hid/main.rs", [5, 6, 7, 8]),
                (65645, "src/deep/MainView.tsx", [9, 10, 11, 12]),
                (65645, "src/main.py", [4, 5, 6, 7]),
                (65640, "sp ace main.txt", [7, 8, 9, 10]),
                (65640, "ünï_main.c", [4, 5, 6, 7]),
            ],
        ),
        (
            "fb",
            [
                (65589, "foo_bar.py", [0, 4]),
                (65587, "FooBar.py", [0, 3]),
                (65582, "foobar.py", [0, 3]),
                (65564, "xfoobar.py", [1, 4]),
            ],
        ),
        (
            "fooBar",
            [
                (65695, "FooBar.py", [0, 1, 2, 3, 4, 5]),
                (65695, "foobar.py", [0, 1, 2, 3, 4, 5]),
                (65689, "foo_bar.py", [0, 1, 2, 4, 5, 6]),
                (65652, "xfoobar.py", [1, 2, 3, 4, 5, 6]),
            ],
        ),
        (
            "sp main",
            [
                (163, "sp ace main.txt", [0, 1, 7, 8, 9, 10]),
                (157, "src/main.py", [0, 4, 5, 6, 7, 9]),
                (151, "src/deep/MainView.tsx", [0, 7, 9, 10, 11, 12]),
            ],
        ),
        ("uni", [(65620, "ünï_main.c", [0, 1, 2])]),
        (
            "src/main",
            [
                (209, "src/main.py", [0, 1, 2, 3, 4, 5, 6, 7]),
                (202, "src/deep/MainView.tsx", [0, 1, 2, 3, 9, 10, 11, 12]),
            ],
        ),
        (
            "^src",
            [
                (84, "src", [0, 1, 2]),
                (84, "src/deep", [0, 1, 2]),
                (84, "src/deep/MainView.tsx", [0, 1, 2]),
                (84, "src/main.py", [0, 1, 2]),
            ],
        ),
        ("'foob !xf", [(109, "FooBar.py", [0, 1, 2, 3]), (109, "foobar.py", [0, 1, 2, 3])]),
        ("^fo.o$", [(109, "fo.o", [0, 1, 2, 3])]),
        (
            "txt$ in",
            [(139, "inner/r.txt", [0, 1, 8, 9, 10]), (116, "sp ace main.txt", [9, 10, 12, 13, 14])],
        ),
        ("MainView.tsx", [(65536 + 131072 + 309, "src/deep/MainView.tsx", list(range(9, 21)))]),
        (
            "inner",
            [(131206, "inner", [0, 1, 2, 3, 4]), (134, "inner/r.txt", [0, 1, 2, 3, 4])],
        ),
        ("", []),
        ("zzz", []),
        ("x" * 513, []),
    ],
)
def test_scores_places_and_order(query: str, expected: Found) -> None:
    assert found(query) == expected


@claim("search-files:scores")
def test_a_folder_is_found_by_its_path() -> None:
    matches = rank("inner", [listing("/r", FILES, FOLDERS)], Stop())
    assert [(m.path, m.is_file) for m in matches] == [("inner", False), ("inner/r.txt", True)]


@claim("search-files:bounded")
def test_the_shortest_of_equals_are_kept() -> None:
    files = [f"{'d/' * (number % 7)}main{number:04}" for number in range(1000)]
    matches = found("main", files, [])
    kept = sorted(files, key=lambda path: (len(path), path))[:MAX_MATCHES]
    assert [path for _, path, _ in matches] == sorted(kept)


def test_many_candidates_give_what_all_of_them_would() -> None:
    chance = random.Random(1)
    words = ["client", "server", "user", "route", "model", "asset", "query", "render", "page"]
    files = [
        f"{chance.choice(words)}/{'_'.join(chance.sample(words, 2))}{number}.py"
        for number in range(20_000)
    ]
    assert len(files) > MAX_SCORED
    for query in ("er", "su", "srvusr", "ms"):
        names = [(path, path.rpartition("/")[2]) for path in files]
        fits = [best_scattered(query, fold(name), name) for _, name in names]
        best = sorted((65_536 + fit[0] for fit in fits if fit), reverse=True)[:MAX_MATCHES]
        scores = [score for score, _, _ in found(query, files, [])]
        assert all(0 <= most - score <= 2 for most, score in zip(best, scores, strict=True))


@given(
    letters=st.text("ab]-[&|", min_size=2, max_size=4),
    texts=st.lists(st.text("abc]-[&|", min_size=1, max_size=9), max_size=40, unique=True),
)
def test_candidates_are_the_texts_that_have_the_letters_in_order(
    letters: str, texts: Sequence[str]
) -> None:
    in_order = [text for text in texts if best_scattered(letters, text, text) is not None]
    assert sorted(path for _, path, _ in found(letters, texts, [])) == sorted(in_order)


def test_roots_inside_of_each_other_give_each_file_once() -> None:
    outer = listing("/r", ["src/main.py", "main.c"], ["src"])
    inner = listing("/r/src", ["main.py"], [])
    matches = rank("main", [outer, inner], Stop())
    assert [(match.root, match.path) for match in matches] == [
        ("/r", "main.c"),
        ("/r/src", "main.py"),
    ]


@claim("search-files:cancelled")
def test_a_search_stops_when_nobody_waits() -> None:
    stop = Stop()
    stop.set()
    with pytest.raises(Stopped):
        rank("ab", [listing("/r", ["ab"] * 10, [])], stop)


def test_queries_have_words_with_signs() -> None:
    assert parse(r"ab 'cd ^ef gh$ ^ij$ !kl !^mn a\ b \!x '  ^") == [
        Word("ab", MatchMode.SCATTERED),
        Word("cd", MatchMode.TOGETHER),
        Word("ef", MatchMode.AT_START),
        Word("gh", MatchMode.AT_END),
        Word("ij", MatchMode.WHOLE),
        Word("kl", MatchMode.TOGETHER, True),
        Word("mn", MatchMode.AT_START, True),
        Word("a b", MatchMode.SCATTERED),
        Word("!x", MatchMode.SCATTERED),
    ]
