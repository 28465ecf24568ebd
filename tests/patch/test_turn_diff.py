"""What a turn has changed, as git shows it; `git apply` takes it."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from app_server.patch.unified import FileSnapshot, TurnDiff, blob_name, hunks

HELLO, BYE = FileSnapshot("hello\n"), FileSnapshot("bye\n")
NOTHING = "0" * 40


def diff_of(*changes: tuple[Any, ...]) -> str:
    """Render changes: each a path, what was there, what is, and whose file it was."""
    diff = TurnDiff()
    for change in changes:
        diff.touch(*change)
    return diff.render()


@pytest.mark.parametrize(
    ("old", "new", "shown"),
    [
        ("hello\n", "bye\n", "@@ -1 +1 @@\n-hello\n+bye\n"),
        ("", "1\n2\n", "@@ -0,0 +1,2 @@\n+1\n+2\n"),
        ("1\n2\n", "", "@@ -1,2 +0,0 @@\n-1\n-2\n"),
        ("a\n", "a\nb\n", "@@ -1 +1,2 @@\n a\n+b\n"),
        (
            "a\nb",
            "a\nb\n",
            "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+b\n",
        ),
        ("a\nb", "x\nb", "@@ -1,2 +1,2 @@\n-a\n+x\n b\n\\ No newline at end of file\n"),
        ("a\r\nb\r\n", "a\r\nB\r\n", "@@ -1,2 +1,2 @@\n a\r\n-b\r\n+B\r\n"),
        ("1\n2\n3\n4\n5\n", "1\nx\n3\ny\n5\n", "@@ -1,5 +1,5 @@\n 1\n-2\n+x\n 3\n-4\n+y\n 5\n"),
        (
            "1\n2\n3\n4\n5\n6\n",
            "x\n2\n3\n4\n5\ny\n",
            "@@ -1,2 +1,2 @@\n-1\n+x\n 2\n@@ -5,2 +5,2 @@\n 5\n-6\n+y\n",
        ),
        ("same\n", "same\n", ""),
    ],
)
def test_hunks_are_written_as_diff_does(old: str, new: str, shown: str) -> None:
    assert hunks(old, new, 1) == shown


def test_content_is_named_as_git_names_it() -> None:
    assert blob_name(b"hello\n") == "ce013625030ba8dba906f756967f9e9ca394464a"


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        (
            [("new.txt", None, HELLO)],
            "diff --git a/new.txt b/new.txt\nnew file mode 100644\n"
            f"index {NOTHING}..{blob_name(b'hello' + bytes([10]))}\n"
            "--- /dev/null\n+++ b/new.txt\n@@ -0,0 +1 @@\n+hello\n",
        ),
        (
            [("run.sh", FileSnapshot("hello\n", "100755"), None)],
            "diff --git a/run.sh b/run.sh\ndeleted file mode 100755\n"
            f"index {blob_name(b'hello' + bytes([10]))}..{NOTHING}\n"
            "--- a/run.sh\n+++ /dev/null\n@@ -1 +0,0 @@\n-hello\n",
        ),
        (
            [("empty", None, FileSnapshot(""))],
            "diff --git a/empty b/empty\nnew file mode 100644\n"
            f"index {NOTHING}..{blob_name(b'')}\n",
        ),
        (
            [("/elsewhere/a", HELLO, BYE)],
            "diff --git a//elsewhere/a b//elsewhere/a\n"
            f"index {blob_name(b'hello' + bytes([10]))}..{blob_name(b'bye' + bytes([10]))}\n"
            "--- a//elsewhere/a\n+++ b//elsewhere/a\n@@ -1 +1 @@\n-hello\n+bye\n",
        ),
        # What was there before the turn counts, not what was there before the last change.
        ([("a", HELLO, BYE), ("a", BYE, HELLO)], ""),
        ([("a", None, BYE), ("a", BYE, None)], ""),
        ([("a", HELLO, HELLO)], ""),
    ],
)
def test_a_file_is_shown(changes: list[tuple[Any, ...]], shown: str) -> None:
    assert diff_of(*changes) == shown


def move(old: str, new: str, before: FileSnapshot, after: FileSnapshot) -> list[tuple[Any, ...]]:
    return [(old, before, None), (new, None, after, old)]


def heads(diff: str) -> list[str]:
    return [line for line in diff.splitlines() if line.startswith(("diff", "new", "del", "ren"))]


def test_a_move_is_one_file() -> None:
    diff = diff_of(*move("a", "sub/b", HELLO, BYE))
    assert heads(diff) == ["diff --git a/a b/sub/b"]
    assert diff.endswith("--- a/a\n+++ b/sub/b\n@@ -1 +1 @@\n-hello\n+bye\n")
    renamed = diff_of(*move("a", "b", HELLO, HELLO))
    assert renamed == ("diff --git a/a b/b\nsimilarity index 100%\nrename from a\nrename to b\n")


def test_a_move_of_a_move_is_one_file() -> None:
    diff = diff_of(*move("a", "b", HELLO, HELLO), *move("b", "c", HELLO, BYE))
    assert heads(diff) == ["diff --git a/a b/c"]
    back = diff_of(*move("a", "b", HELLO, HELLO), *move("b", "a", HELLO, HELLO))
    assert back == ""


def test_a_move_ends_to_be_one_when_its_old_place_is_filled() -> None:
    diff = diff_of(*move("a", "b", HELLO, BYE), ("a", None, FileSnapshot("third\n")))
    assert heads(diff) == ["diff --git a/a b/a", "diff --git a/b b/b", "new file mode 100644"]


def test_a_move_over_another_file_is_a_deletion_and_a_change() -> None:
    diff = diff_of(
        ("a", HELLO, None),
        ("b", FileSnapshot("other\n"), BYE, "a"),
    )
    assert heads(diff) == ["diff --git a/a b/a", "deleted file mode 100644", "diff --git a/b b/b"]


def test_git_applies_the_diff(tmp_path: Path) -> None:
    folder = Path(os.path.realpath(tmp_path))
    before = {"a": "1\n2\n3\n", "gone": "x\n", "from": "same\n", "end": "a\nb"}
    for name, text in before.items():
        (folder / name).write_text(text)
    diff = diff_of(
        ("a", FileSnapshot(before["a"]), FileSnapshot("1\ntwo\n3\n")),
        ("gone", FileSnapshot(before["gone"]), None),
        ("new/file", None, FileSnapshot("n\n")),
        ("end", FileSnapshot(before["end"]), FileSnapshot("a\nB")),
        *move("from", "to", FileSnapshot("same\n"), FileSnapshot("same\n")),
    )
    applied = subprocess.run(
        ["git", "apply", "-"], cwd=folder, input=diff, text=True, check=False, timeout=60
    )
    assert applied.returncode == 0
    found = {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}
    assert found == {"a": "1\ntwo\n3\n", "new/file": "n\n", "end": "a\nB", "to": "same\n"}


def test_a_turn_that_touched_too_much_says_so() -> None:
    diff = TurnDiff()
    huge = FileSnapshot("x" * 40_000_000)
    diff.touch("1", huge, None)
    diff.touch("2", huge, None)
    assert diff.render() == "# 2 more changed files are not shown: too large\n"
