"""Differences are right whatever is compared, small where they can be, and soon found."""

import random
import time
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.patch.unified import Edit, line_edits

LINES = st.lists(st.sampled_from("abcde"), max_size=30)


def applied(old: list[str], new: list[str], edits: list[Edit]) -> list[str]:
    """Apply edits; what is between them must be the same on both sides."""
    out: list[str] = []
    at = 0
    for edit in edits:
        assert old[at : edit.old_start] == new[len(out) : edit.new_start]
        out += old[at : edit.old_start] + new[edit.new_start : edit.new_end]
        at = edit.old_end
    return out + old[at:]


@given(LINES, LINES)
@settings(max_examples=500, deadline=None)
def test_edits_make_the_one_of_the_other(old: list[str], new: list[str]) -> None:
    edits = line_edits(old, new)
    assert applied(old, new, edits) == new
    touching = [
        (one, two)
        for one, two in pairwise(edits)
        if (one.old_end, one.new_end) == (two.old_start, two.new_start)
    ]
    assert touching == []


def test_few_changes_are_few_edits() -> None:
    old = [f"line {number}" for number in range(10_000)]
    new = [*old[:10], "one", *old[11:5000], *old[5001:9000], "two", *old[9000:]]
    assert line_edits(old, new) == [
        Edit(10, 11, 10, 11),
        Edit(5000, 5001, 5000, 5000),
        Edit(9000, 9000, 8999, 9000),
    ]


def test_many_changes_are_found_between_lines_that_are_there_once() -> None:
    old = [f"line {number}" for number in range(10_000)]
    new = [f"new {number}" if number % 20 == 0 else line for number, line in enumerate(old)]
    assert line_edits(old, new) == [Edit(n, n + 1, n, n + 1) for n in range(0, 10_000, 20)]


def test_no_input_takes_long() -> None:
    chance = random.Random(1)
    size = 20_000
    worst = [
        ([chance.choice("ab") for _ in range(size)], [chance.choice("ab") for _ in range(size)]),
        (["x"] * size, ["x", "y"] * (size // 2)),
        ([str(n) for n in range(size)], [str(n) for n in reversed(range(size))]),
    ]
    for old, new in worst:
        started = time.process_time()
        assert applied(old, new, line_edits(old, new)) == new
        # Comparing each line with each would take minutes.
        assert time.process_time() - started < 20
