"""Unified diffs have the context that was asked for, and the right numbers."""

import errno
import os
import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest

from app_server.patch import unified
from app_server.patch.parse import AddFile, DeleteFile, Hunk, NotApplicable, UpdateFile, parse_patch
from app_server.patch.plan import plan_patch
from app_server.patch.shown import StreamedPatch
from app_server.patch.unified import (
    NO_NEWLINE,
    Edit,
    FileSnapshot,
    TurnDiff,
    hunks,
    line_edits,
)
from app_server.permissions.sandbox.policy import UNRESTRICTED
from tests.patch.folders import patch_of

HEAD = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n")


def side(lines: list[str], mark: str) -> str:
    """Return what one side of a diff has: the lines that stay, and those with its mark."""
    text = "".join(lines).replace("\n" + NO_NEWLINE, NO_NEWLINE)
    kept = [line for line in text.splitlines(keepends=True) if line[0] in " " + mark]
    return "".join(line[1:] for line in kept).replace(NO_NEWLINE, "")


def check(old: str, new: str, context: int) -> None:
    """Apply a diff by its numbers alone; everything around its hunks is the same."""
    before, after = old.splitlines(keepends=True), new.splitlines(keepends=True)
    parts = HEAD.split(hunks(old, new, context))
    assert parts[0] == ""
    at = there = 0
    for number in range(1, len(parts), 5):
        start, count, new_start, new_count = (
            1 if word is None else int(word) for word in parts[number : number + 4]
        )
        body = parts[number + 4].splitlines(keepends=True)
        # An empty side is named by the line before it.
        start, new_start = start - (count > 0), new_start - (new_count > 0)
        assert before[at:start] == after[there:new_start], (old, new)
        assert side(body, "-") == "".join(before[start : start + count]), (old, new)
        assert side(body, "+") == "".join(after[new_start : new_start + new_count]), (old, new)
        marks = "".join(line[0] for line in body if not line.startswith("\\"))
        head, tail = re.match(" *", marks), re.search(" *$", marks)
        assert head is not None
        assert tail is not None
        assert len(head[0]) == min(context, start + len(head[0]))
        assert len(tail[0]) == min(context, len(before) - start - count + len(tail[0]))
        assert " " * (2 * context + 1) not in marks.strip(" ")
        at, there = start + count, new_start + new_count
    assert before[at:] == after[there:]


def test_a_diff_makes_the_new_text_with_just_the_context_that_was_asked_for() -> None:
    texts = [
        "".join(lines) for count in range(4) for lines in product(("a\n", "b\n"), repeat=count)
    ]
    texts += [text + "a" for text in texts]
    for old, new, context in product(texts, texts, (0, 1, 2)):
        check(old, new, context)


@pytest.mark.parametrize("context", [0, 1, 3])
@pytest.mark.parametrize("apart", range(1, 9))
def test_hunks_are_joined_where_their_context_touches(context: int, apart: int) -> None:
    lines = [f"{number}\n" for number in range(30)]
    changed = [*lines]
    for number in (10, 10 + apart):
        changed[number] = "x\n"
    check("".join(lines), "".join(changed), context)
    shown = hunks("".join(lines), "".join(changed), context)
    assert shown.count("@@ -") == (1 if apart - 1 <= 2 * context else 2)


def test_the_diff_of_a_turn_has_three_lines_of_context() -> None:
    diff = TurnDiff()
    old = "".join(f"{number}\n" for number in range(1, 12))
    diff.touch("a", FileSnapshot(old), FileSnapshot(old.replace("6\n", "x\n")))
    assert diff.render().endswith("@@ -3,7 +3,7 @@\n 3\n 4\n 5\n-6\n+x\n 7\n 8\n 9\n")


def test_a_move_is_shown_as_what_it_is_after_each_change() -> None:
    old, new = FileSnapshot("old\n"), FileSnapshot("new\n")
    diff = TurnDiff()
    diff.touch("a", old, None)
    diff.touch("b", None, old, "a")
    assert diff.render() == (
        "diff --git a/a b/b\nsimilarity index 100%\nrename from a\nrename to b\n"
    )
    # Once more: the first place counts, also when it is filled and emptied again.
    diff.touch("b", old, None)
    diff.touch("c", None, old, "b")
    assert diff.render().startswith("diff --git a/a b/c\n")
    diff.touch("a", None, new)
    heads = [line for line in diff.render().splitlines() if line.startswith(("diff", "new"))]
    assert heads == ["diff --git a/a b/a", "diff --git a/c b/c", "new file mode 100644"]
    diff.touch("a", new, None)
    assert diff.render().startswith("diff --git a/a b/c\n")
    diff.touch("c", old, None)
    assert diff.render().startswith("diff --git a/a b/a\ndeleted file mode 100644\n")


# Blank lines, and what is in front of the last one.


@pytest.mark.parametrize("blank", ["", "  "])
@pytest.mark.parametrize("count", [1, 3])
def test_blank_lines_between_files_are_passed_over(blank: str, count: int) -> None:
    between = [blank] * count
    patch = parse_patch(
        patch_of(
            *("*** Add File: a", "+x", *between),
            *("*** Delete File: b", *between),
            *("*** Update File: c", "@@", "-x", "@@", "-z", *between, "*** End of File"),
            *between,
            *("*** Delete File: d", *between),
        )
    )
    kept = ((" ", blank[1:]),) * count
    assert patch.changes[:2] == (AddFile("a", "x\n"), DeleteFile("b"))
    assert patch.changes[3] == DeleteFile("d")
    updated = patch.changes[2]
    assert isinstance(updated, UpdateFile)
    assert updated.hunks[0] == Hunk((), (("-", "x"),))
    assert updated.hunks[1].at_end
    assert updated.hunks[1].lines[: 1 + len(kept)] == (("-", "z"), *kept)


@pytest.mark.parametrize("end", ["  *** End Patch", "\t*** End Patch  "])
def test_the_last_line_may_be_indented(end: str) -> None:
    head = ["*** Begin Patch", "*** Update File: a"]
    for lines in (["-x", "+y"], ["@@ c", "-x", "+y"], ["-x", "+y", "*** End of File"]):
        (change,) = parse_patch("\n".join([*head, *lines, end])).changes
        assert isinstance(change, UpdateFile)
        assert len(change.hunks) == 1
        assert change.hunks[0].lines == (("-", "x"), ("+", "y"))
    assert parse_patch("\n".join(["*** Begin Patch", "*** Add File: a", "+x", end])).changes == (
        AddFile("a", "x\n"),
    )
    with pytest.raises(Exception, match=r"Update hunk does not contain any lines"):
        parse_patch("\n".join([*head, "@@ c", end]))


def test_lines_without_a_file_are_nobodys_while_a_patch_is_written() -> None:
    patch = StreamedPatch()
    patch.feed("*** Begin Patch\n*** Add File: a\n+1\n*** Add File: \n+2\n*** End Patch\n+3\n")
    assert [(change.path, change.diff) for change in patch.changes()] == [("a", "1\n")]


def test_a_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "a"
    file.write_text("x\n")

    def grow(number: int) -> dict[str, bytes]:
        with file.open("a") as more:
            more.write("y\n")
        return {}

    monkeypatch.setattr("app_server.patch.plan._attributes", grow)
    patch = parse_patch(patch_of("*** Update File: a", "-x"))
    with pytest.raises(NotApplicable, match=r"/a: it changes while it is read$"):
        plan_patch(patch, str(tmp_path), UNRESTRICTED)


@pytest.mark.parametrize(
    ("failure", "reason"),
    [(OSError(errno.EIO, "words"), os.strerror(errno.EIO)), (OSError("words"), "words")],
)
def test_what_the_disk_says_is_said_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: OSError, reason: str
) -> None:
    (tmp_path / "a").write_text("x\n")

    def fail(number: int) -> dict[str, bytes]:
        raise failure

    monkeypatch.setattr("app_server.patch.plan._attributes", fail)
    patch = parse_patch(patch_of("*** Update File: a", "-x"))
    with pytest.raises(NotApplicable, match=f"^Failed to read file to update .*/a: {reason}$"):
        plan_patch(patch, str(tmp_path), UNRESTRICTED)


@pytest.mark.parametrize("context", [0, 1, 3])
def test_of_a_large_file_only_the_lines_around_its_changes_are_compared(
    monkeypatch: pytest.MonkeyPatch, context: int
) -> None:
    compared: list[Sequence[str]] = []

    def note(old: Sequence[str], new: Sequence[str]) -> list[Edit]:
        compared.extend((old, new))
        return line_edits(old, new)

    monkeypatch.setattr(unified, "line_edits", note)
    lines = [f"{number:04}\n" for number in range(1000)]
    changed = [*lines]
    changed[500] = "xxxx\n"
    shown = hunks("".join(lines), "".join(changed), context)
    assert shown.startswith("@@ -501 " if context == 0 else f"@@ -{501 - context},")
    around = slice(500 - context, 501 + context)
    assert compared == [lines[around], changed[around]]
