"""Differences of lines are as short as they can be, and right where they are not."""

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import permutations, product

import pytest

from app_server.patch import unified
from app_server.patch.unified import Edit, line_edits


@cache
def common(old: str, new: str) -> int:
    """Return the length of the longest lines in common that keep their order."""
    if not old or not new:
        return 0
    if old[0] == new[0]:
        return 1 + common(old[1:], new[1:])
    return max(common(old[1:], new), common(old, new[1:]))


def kept(edits: Sequence[Edit], old: str, new: str) -> int:
    """Check that edits make `new` of `old`, in order and apart; return how many lines stay."""
    made, at, there = "", 0, 0
    for number, edit in enumerate(edits):
        assert edit.old_start > at or number == 0
        assert edit.old_start - at == edit.new_start - there
        assert (edit.old_start, edit.new_start) != (edit.old_end, edit.new_end)
        made += old[at : edit.old_start] + new[edit.new_start : edit.new_end]
        at, there = edit.old_end, edit.new_end
    assert made + old[at:] == new
    return len(old) - sum(edit.old_end - edit.old_start for edit in edits)


def texts(letters: str, longest: int) -> Iterator[str]:
    for length in range(longest + 1):
        yield from map("".join, product(letters, repeat=length))


def test_no_shorter_script_makes_the_one_text_of_the_other() -> None:
    for letters, longest in (("abc", 3), ("ab", 5)):
        everything = list(texts(letters, longest))
        for old, new in product(everything, everything):
            assert kept(line_edits(old, new), old, new) == common(old, new), (old, new)


@pytest.mark.parametrize("edits", [0, 1, 2])
def test_what_differs_in_more_lines_is_cut_and_still_right(edits: int) -> None:
    everything = list(texts("abc", 3))
    for old, new in product(everything, everything):
        kept(line_edits(old, new, max_edits=edits), old, new)


def test_lines_that_are_there_once_on_both_sides_keep_as_many_as_they_can() -> None:
    for one in permutations("abcdef"):
        new = "".join(one)
        for old in ("abcdef", "xabcdefy", "axbcdyef"):
            assert kept(line_edits(old, new, max_edits=0), old, new) == common(old, new), (old, new)


def test_lines_that_are_there_twice_are_no_place_to_cut() -> None:
    assert line_edits("xaay", "paaq", max_edits=0) == [Edit(0, 4, 0, 4)]
    assert line_edits("xaby", "paaq", max_edits=0) == [Edit(0, 4, 0, 4)]
    assert line_edits("xaay", "pabq", max_edits=0) == [Edit(0, 4, 0, 4)]
    assert line_edits("xaby", "pabq", max_edits=0) == [Edit(0, 1, 0, 1), Edit(3, 4, 3, 4)]


@pytest.mark.parametrize("differing", [200, 201])
def test_two_hundred_lines_may_differ_before_a_piece_is_replaced_whole(differing: int) -> None:
    # Each `a` stays, and stands in between of lines that go.
    old, new = ["a"] + ["b", "a"] * differing, ["a"] * (differing + 1)
    if differing == 200:
        assert line_edits(old, new) == [
            Edit(2 * n + 1, 2 * n + 2, n + 1, n + 1) for n in range(200)
        ]
    else:
        assert len(line_edits(old, new)) == 1


def test_a_comparison_ends_when_its_steps_are_used_up() -> None:
    """With 2 differing lines three rounds are walked; in each a step is a diagonal or a line."""
    old, new = "xaaaay", "aaaa"

    def is_found(steps: int) -> bool:
        return len(line_edits(old, new, max_steps=steps)) > 1

    assert unified.MAX_STEPS == 2_000_000
    enough = next(steps for steps in range(100) if is_found(steps))
    assert [is_found(steps) for steps in (enough - 1, enough, enough + 1)] == [False, True, True]
    # Rounds 0 and 1, 1 and 2 diagonals, the second of which passes the four equal lines.
    assert enough == 1 + 2 + 4
