"""A patch whose text arrives in pieces."""

from typing import Any

import pytest

from app_server.patch.parse import MAX_FILES
from app_server.patch.shown import MAX_EARLY_BYTES, StreamedPatch
from tests.support.turn_tools.patches import patch_of

WHOLE = "\n".join(
    [
        "Here it is:",
        "*** Begin Patch",
        "*** Environment ID: local",
        "*** Update File: b.txt",
        "*** Move to: sub/c.txt",
        "@@ class A",
        "@@ def b",
        " stays",
        "-goes",
        "",
        "+comes",
        "*** End of File",
        "*** Add File: a.txt",
        "+one",
        "no line of it",
        "+two",
        "*** Delete File: d.txt",
        "*** Update File: e.txt",
        "-q",
        "+r",
        "*** End Patch",
        "*** Add File: behind.txt",
        "",
    ]
)
ALL: list[dict[str, Any]] = [
    {"path": "a.txt", "kind": {"type": "add"}, "diff": "one\ntwo\n"},
    {
        "path": "b.txt",
        "kind": {"type": "update", "move_path": "sub/c.txt"},
        "diff": "@@ class A\n@@ def b\n stays\n-goes\n \n+comes\n*** End of File\n"
        "\n\nMoved to: sub/c.txt",
    },
    {"path": "d.txt", "kind": {"type": "delete"}, "diff": ""},
    {"path": "e.txt", "kind": {"type": "update", "move_path": None}, "diff": "@@\n-q\n+r\n"},
]


def shown(patch: StreamedPatch) -> list[dict[str, Any]]:
    return [change.model_dump(by_alias=True) for change in patch.changes()]


@pytest.mark.parametrize("size", [1, 7, len(WHOLE)])
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_pieces_of_any_size_say_the_same(size: int, line_end: str) -> None:
    text = WHOLE.replace("\n", line_end)
    patch = StreamedPatch()
    for start in range(0, len(text), size):
        patch.feed(text[start : start + size])
    assert shown(patch) == ALL


def test_it_says_when_a_change_is_another_one() -> None:
    patch = StreamedPatch()
    pieces = [
        "*** Begin Patch\n*** Add Fi",
        "le: a\n",
        "+on",
        "e",
        "\n",
        "nonsense\n",
        "+two\n*** ",
    ]
    assert [patch.feed(piece) for piece in pieces] == [False, True, False, False, True, False, True]
    assert shown(patch) == [{"path": "a", "kind": {"type": "add"}, "diff": "one\ntwo\n"}]


def test_a_path_that_comes_again_begins_again() -> None:
    patch = StreamedPatch()
    patch.feed(patch_of("*** Add File: a", "+one", "*** Add File: a", "+two"))
    assert shown(patch) == [{"path": "a", "kind": {"type": "add"}, "diff": "two\n"}]


def test_it_is_bounded_in_files_and_in_text() -> None:
    patch = StreamedPatch()
    patch.feed(patch_of(*(f"*** Add File: {number:05}\n+x" for number in range(MAX_FILES + 1))))
    assert [change.path for change in patch.changes()] == [f"{n:05}" for n in range(MAX_FILES)]

    patch = StreamedPatch()
    patch.feed(patch_of("*** Add File: a", "+" + "x" * MAX_EARLY_BYTES))
    (change,) = patch.changes()
    assert change.diff.endswith("more characters are not shown")
    assert len(change.diff) < MAX_EARLY_BYTES + 100
