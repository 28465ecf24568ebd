"""Large files and many of them."""

import os
import time
from pathlib import Path

import pytest

from app_server.patch.parse import NotApplicable
from app_server.patch.unified import FileSnapshot, TurnDiff, hunks, line_edits
from tests.patch.folders import apply, content, patch_of

LINE = "this is line %d of a large file, with some words in it\n"


def test_a_file_of_5_mb_is_changed_in_many_places(tmp_path: Path) -> None:
    lines = [LINE % number for number in range(100_000)]
    text = "".join(lines)
    assert len(text) > 5_000_000
    file = tmp_path / "large.txt"
    file.write_text(text)
    changes: list[str] = []
    for number in range(0, 100_000, 100):
        changes += ["@@", f"-{lines[number].rstrip()}", f"+changed {number}"]
        lines[number] = f"changed {number}\n"
    started = time.process_time()
    apply(tmp_path, patch_of("*** Update File: large.txt", *changes))
    assert file.read_text() == "".join(lines)
    shown = hunks(text, file.read_text(), 1)
    assert shown.count("@@ -") == 1000
    # It takes less than a second; a search of each hunk from the start would take minutes.
    assert time.process_time() - started < 30


def test_a_hunk_that_a_large_file_does_not_have_is_missed_soon(tmp_path: Path) -> None:
    (tmp_path / "large.txt").write_text("\n" * 200_000 + "end\n")
    wanted = ["-" for _ in range(1000)] + ["-not the end"]
    started = time.process_time()
    with pytest.raises(NotApplicable, match="Failed to find expected lines"):
        apply(tmp_path, patch_of("*** Update File: large.txt", *wanted))
    assert time.process_time() - started < 30


def test_a_thousand_files_are_changed_by_one_patch(tmp_path: Path) -> None:
    folder = Path(os.path.realpath(tmp_path))
    patch: list[str] = []
    for number in range(1000):
        inner = folder / f"d{number % 200}"
        inner.mkdir(exist_ok=True)
        (inner / f"{number}.txt").write_text(f"one {number}\ntwo\n")
        patch += [f"*** Update File: d{number % 200}/{number}.txt", "@@", f"-one {number}", "+1"]
    apply(folder, patch_of(*patch))
    assert content(folder) == {f"d{n % 200}/{n}.txt": b"1\ntwo\n" for n in range(1000)}


def test_a_turn_that_changed_much_has_a_diff_of_bounded_size() -> None:
    diff = TurnDiff()
    text = "x" * 99 + "\n"
    for number in range(300):
        diff.touch(f"{number:03}", None, FileSnapshot(text * 100))
    shown = diff.render()
    assert len(shown) < 1_048_576
    assert shown.startswith("diff --git a/000 b/000\n")
    assert shown.endswith("more changed files are not shown: too large\n")


def test_large_files_that_were_turned_around_are_compared_soon() -> None:
    old = [str(number) for number in range(50_000)]
    started = time.process_time()
    assert line_edits(old, old[::-1])
    assert time.process_time() - started < 30
