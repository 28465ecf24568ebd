"""What holds for every patch: there and back is the same, and what does not fit does nothing."""

import os
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app_server.patch.parse import NotApplicable
from app_server.patch.plan import FileText
from app_server.patch.unified import line_edits
from tests.patch.folders import apply, content, patch_of

TEXT = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), max_size=8
).filter(lambda line: not line.startswith("\ufeff"))
LINES = st.lists(TEXT, max_size=12)
ENDS = st.sampled_from(["\n", "\r\n"])
CONTEXT = st.integers(0, 3)


def file_of(lines: list[str], end: str, *, last: bool) -> bytes:
    text = end.join(lines) + (end if last and lines else "")
    return text.encode()


def update(name: str, old: list[str], new: list[str]) -> list[str]:
    """Write an update with whole files as context, so that there is one place for each hunk."""
    out = [f"*** Update File: {name}", "@@"]
    at = 0
    for edit in line_edits(old, new):
        out += [f" {line}" for line in old[at : edit.old_start]]
        out += [f"-{line}" for line in old[edit.old_start : edit.old_end]]
        out += [f"+{line}" for line in new[edit.new_start : edit.new_end]]
        at = edit.old_end
    return [*out, *(f" {line}" for line in old[at:])]


@given(LINES.filter(bool), LINES.filter(bool), ENDS, st.booleans())
@settings(max_examples=150, deadline=None)
def test_there_and_back_is_the_original(
    old: list[str], new: list[str], end: str, last: bool
) -> None:
    if "" in (old[-1], new[-1]) or 1 in (len(old), len(new)):
        # A last line that is empty and has no end is no line; a lone one has no end to go by.
        last = True
    before = file_of(old, end, last=last)
    with TemporaryDirectory() as place:
        folder = Path(os.path.realpath(place))
        (folder / "a.txt").write_bytes(before)
        apply(folder, patch_of(*update("a.txt", old, new)))
        assert (folder / "a.txt").read_bytes() == file_of(new, end, last=last)
        apply(folder, patch_of(*update("a.txt", new, old)))
        assert content(folder) == {"a.txt": before}


@given(st.text(st.characters(exclude_categories=["Cs"])))
@settings(max_examples=300, deadline=None)
def test_lines_put_together_are_the_text(text: str) -> None:
    assert FileText.of(text).joined() == text


@given(LINES.filter(bool), LINES, st.integers(0, 3), st.sampled_from(["-", " "]))
@settings(max_examples=60, deadline=None)
def test_a_hunk_that_is_not_there_changes_no_file(
    old: list[str], others: list[str], at: int, mark: str
) -> None:
    wrong = ["*** Update File: b.txt", "@@", f"{mark}not in the file at all", "+x"]
    rest = [
        [f"*** Add File: new-{number}.txt", f"+{line}"] for number, line in enumerate(others)
    ] + [update("a.txt", old, [*old, "more"]), ["*** Delete File: c.txt"]]
    rest.insert(min(at, len(rest)), wrong)
    with TemporaryDirectory() as place:
        folder = Path(os.path.realpath(place))
        for name in ("a.txt", "b.txt", "c.txt"):
            (folder / name).write_bytes(file_of(old, "\n", last=True))
        before = content(folder)
        with pytest.raises(NotApplicable, match=r"Failed to find expected lines in .*b\.txt"):
            apply(folder, patch_of(*(line for change in rest for line in change)))
        assert content(folder) == before
