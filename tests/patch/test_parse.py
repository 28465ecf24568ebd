"""Patches are read, and what is none is refused with its line."""

import pytest

from app_server.patch.parse import (
    MAX_FILES,
    AddFile,
    BadPatch,
    DeleteFile,
    EmptyPatch,
    Hunk,
    Patch,
    UpdateFile,
    parse_patch,
)
from tests.patch.folders import patch_of


def test_every_kind_of_change_is_read() -> None:
    text = patch_of(
        "*** Add File: new file.txt",
        "+one",
        "+",
        "*** Delete File: gone.txt",
        "*** Update File: a.py",
        "*** Move to: b.py",
        "@@ class A:",
        "@@ def f():",
        " stays",
        "-goes",
        "+comes",
        "@@",
        "-last",
        "*** End of File",
    )
    stays = ((" ", "stays"), ("-", "goes"), ("+", "comes"))
    assert parse_patch(text) == Patch(
        (
            AddFile("new file.txt", "one\n\n"),
            DeleteFile("gone.txt"),
            UpdateFile(
                "a.py",
                "b.py",
                (
                    Hunk(("class A:", "def f():"), stays),
                    Hunk((), (("-", "last"),), at_end=True),
                ),
            ),
        )
    )


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("\n  *** Begin Patch \n*** Add File: a\n+x\n*** End Patch\n\n", AddFile("a", "x\n")),
        ("<<'EOF'\n*** Begin Patch\n*** Add File: a\n+x\n*** End Patch\nEOF", AddFile("a", "x\n")),
        ("*** Begin Patch\r\n*** Add File: a\r\n+x\r\n*** End Patch\r\n", AddFile("a", "x\n")),
        (patch_of("*** Add File: a"), AddFile("a", "")),
        (patch_of("*** Update File: a", "*** Move to: b"), UpdateFile("a", "b", ())),
        (
            patch_of("*** Update File: a", "-x", "", "+y"),
            UpdateFile("a", None, (Hunk((), (("-", "x"), (" ", ""), ("+", "y"))),)),
        ),
    ],
)
def test_what_models_write_is_read(text: str, change: object) -> None:
    assert parse_patch(text).changes == (change,)


def test_an_environment_is_read() -> None:
    patch = parse_patch(patch_of("*** Environment ID: box", "*** Delete File: a"))
    assert patch == Patch((DeleteFile("a"),), "box")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "invalid patch: The first line of the patch must be '*** Begin Patch'"),
        ("no patch", "invalid patch: The first line of the patch must be '*** Begin Patch'"),
        ("*** Begin Patch", "invalid patch: The last line of the patch must be '*** End Patch'"),
        (
            "*** Begin Patch\n*** Add File: a\n+x",
            "invalid patch: The last line of the patch must be '*** End Patch'",
        ),
        (
            patch_of("*** Frobnicate: x"),
            "invalid hunk at line 2, '*** Frobnicate: x' is not a valid hunk header. Valid hunk "
            "headers: '*** Add File: {path}', '*** Delete File: {path}', '*** Update File: {path}'",
        ),
        (
            patch_of("*** Update File: a.txt"),
            "invalid hunk at line 2, Update file hunk for path 'a.txt' is empty",
        ),
        (
            patch_of("*** Update File: a", "@@", "xhello"),
            "invalid hunk at line 4, Unexpected line found in update hunk: 'xhello'. Every line "
            "should start with ' ' (context line), '+' (added line), or '-' (removed line)",
        ),
        (
            patch_of("*** Update File: a", "@@", "*** End of File"),
            "invalid hunk at line 3, Update hunk does not contain any lines",
        ),
        (
            patch_of("*** Update File: a", "-x", "*** End of File", "-y"),
            "invalid hunk at line 5, Expected update hunk to start with a @@ context marker, "
            "got: '-y'",
        ),
        (patch_of("*** Add File: "), "invalid hunk at line 2, '*** Add File: ' needs a path"),
        (
            patch_of("*** Delete File: a\0b"),
            "invalid hunk at line 2, '*** Delete File: ' needs a path",
        ),
    ],
)
def test_what_is_no_patch_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadPatch) as refused:
        parse_patch(text)
    assert str(refused.value) == message


def test_a_patch_of_nothing_is_empty() -> None:
    with pytest.raises(EmptyPatch, match="empty patch"):
        parse_patch(patch_of())


def test_the_files_of_a_patch_are_bounded() -> None:
    deletes = [f"*** Delete File: {number}" for number in range(MAX_FILES)]
    assert len(parse_patch(patch_of(*deletes)).changes) == MAX_FILES
    with pytest.raises(BadPatch, match=f"more than {MAX_FILES} files"):
        parse_patch(patch_of(*deletes, "*** Delete File: more"))
