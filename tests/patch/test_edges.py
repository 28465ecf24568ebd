"""What is at the edges of files, hunks and patches."""

import pytest

from app_server.patch.parse import EmptyPatch, Hunk, NotApplicable, parse_patch
from app_server.patch.plan import apply_hunks


def hunk(*lines: str, contexts: tuple[str, ...] = (), at_end: bool = False) -> Hunk:
    return Hunk(contexts, tuple((line[0], line[1:]) for line in lines), at_end)


@pytest.mark.parametrize(
    ("before", "lines", "after"),
    [
        # Behind the last line its end counts, not that of the line before it.
        ("a\r\nb\n", ["+c"], "a\r\nb\nc\n"),
        ("a\nb\r\n", ["+c"], "a\nb\r\nc\r\n"),
        ("a\r\n", ["+c"], "a\r\nc\r\n"),
        # In front of a line the one before it in the hunk counts.
        ("a\nb\r\n", [" a", "+x", " b"], "a\nx\nb\r\n"),
        ("a\nb\r\n", ["+x", " a"], "x\na\nb\r\n"),
        ("a\r\nb\n", ["+x", " a"], "x\r\na\r\nb\n"),
        ("a\r\nb\n", ["+x\r", " a"], "x\r\na\r\nb\n"),
        # One line alone says nothing of the lines of a file.
        ("a\r", ["+b"], "a\r\nb\r"),
        ("a\r\nb", ["+c"], "a\r\nb\r\nc"),
        ("a\r\nb\nc", ["+d"], "a\r\nb\nc\nd"),
    ],
)
def test_a_line_that_comes_has_the_end_of_its_neighbour(
    before: str, lines: list[str], after: str
) -> None:
    assert apply_hunks("/a", before, [hunk(*lines)]) == after


@pytest.mark.parametrize(
    ("before", "lines", "after"),
    [
        ("a\nb\n", ["-b", " "], "a\n"),
        ("a\nb\n", ["-b", " ", " ", " "], "a\n"),
        ("a\nb\n\n", ["-b", " "], "a\n\n"),
    ],
)
def test_empty_lines_at_the_end_of_a_hunk_may_be_missing(
    before: str, lines: list[str], after: str
) -> None:
    assert apply_hunks("/a", before, [hunk(*lines)]) == after


@pytest.mark.parametrize("lines", [[" "], ["-x", " "], ["-a", "-"], ["-a", " x"]])
def test_other_lines_at_its_end_may_not(lines: list[str]) -> None:
    with pytest.raises(NotApplicable, match=r"^Failed to find expected lines in /a:\n"):
        apply_hunks("/a", "a\n", [hunk(*lines)])


def test_hunks_are_found_behind_each_other() -> None:
    twice = [hunk("-a"), hunk("-a")]
    assert apply_hunks("/a", "a\na\nb\n", twice) == "b\n"
    with pytest.raises(NotApplicable):
        apply_hunks("/a", "a\nb\n", twice)
    # What was written before is not looked at again.
    assert apply_hunks("/a", "a\nb\n", [hunk("-a", "+b"), hunk("-b", "+c")]) == "b\nc\n"


def test_a_context_is_a_line_behind_the_hunk_before() -> None:
    found = apply_hunks("/a", "f\nx\nf\nx\n", [hunk(" x"), hunk("-x", contexts=("f",))])
    assert found == "f\nx\nf\n"
    with pytest.raises(NotApplicable, match=r"^Failed to find context 'f' in /a$"):
        apply_hunks("/a", "f\nx\nx\n", [hunk(" x"), hunk("-x", contexts=("f",))])
    # The line of a context is not one of the lines behind it.
    with pytest.raises(NotApplicable, match=r"^Failed to find expected lines"):
        apply_hunks("/a", "f\nx\n", [hunk("-f", contexts=("f",))])
    assert apply_hunks("/a", "f\nf\nx\n", [hunk("-x", contexts=("f", "f"))]) == "f\nf\n"


@pytest.mark.parametrize(
    "text",
    [
        "*** Begin Patch\n*** End Patch",
        "<<EOF\n*** Begin Patch\n*** End Patch\nEOF",
        "<<'EOF'\n*** Begin Patch\r\n*** End Patch\nEOF",
        "*** Begin Patch\r\n*** End Patch",
    ],
)
def test_a_patch_without_changes_is_empty_however_it_is_wrapped(text: str) -> None:
    with pytest.raises(EmptyPatch, match=r"^empty patch$"):
        parse_patch(text)
