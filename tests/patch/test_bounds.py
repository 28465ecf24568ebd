"""Patches at their bounds, as written down: what is at one is taken, what is above is not."""

import os
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import to_json

from app_server.patch import plan as planning
from app_server.patch import unified
from app_server.patch.in_command import CommandPatch, find_patch
from app_server.patch.parse import BadPatch, Hunk, NotApplicable, NotWritten, parse_patch
from app_server.patch.plan import apply_hunks
from app_server.patch.shown import StreamedPatch, bounded_changes
from app_server.patch.unified import FileSnapshot, TurnDiff
from app_server.patch.write import new_token, temporary_name, write_plan
from app_server.permissions.sandbox.policy import EffectivePolicy
from app_server.permissions.shell.parse import ShellGrammar
from protocol.turns.items import AddPatchChangeKind, FileUpdateChange
from tests.patch.folders import apply, content, patch_of, plan

MIB = 1024 * 1024


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = Path(os.path.realpath(tmp_path)) / "work"
    folder.mkdir()
    return folder


# What is read.


def test_a_patch_names_2000_files_and_no_more() -> None:
    lines = [f"*** Delete File: {number}" for number in range(2001)]
    assert len(parse_patch(patch_of(*lines[:2000])).changes) == 2000
    with pytest.raises(BadPatch, match=r"^invalid patch: it names more than 2000 files$"):
        parse_patch(patch_of(*lines))


def test_a_patch_that_is_still_written_shows_2000_files() -> None:
    patch = StreamedPatch()
    patch.feed("*** Begin Patch\n")
    fed = [patch.feed(f"*** Delete File: {number:04}\n") for number in range(2002)]
    assert fed == [True] * 2000 + [False] * 2
    assert [change.path for change in patch.changes()] == [f"{number:04}" for number in range(2000)]
    # One that is shown already goes on.
    assert patch.feed("*** Add File: 0007\n+x\n")
    assert patch.changes()[7].diff == "x\n"


def test_a_patch_that_is_still_written_is_cut_at_64000_bytes() -> None:
    patch = StreamedPatch()
    # With its quotes and a line end, which JSON writes as two bytes.
    patch.feed("*** Begin Patch\n*** Add File: a\n+" + "x" * 63_996 + "\n")
    assert patch.changes()[0].diff == "x" * 63_996 + "\n"
    patch.feed("*** Add File: a\n+" + "x" * 63_997 + "\n")
    assert patch.changes()[0].diff.endswith("more characters are not shown")


async def test_the_first_line_of_a_command_with_a_patch_has_8192_characters() -> None:
    text = patch_of("*** Delete File: a")
    for length, found in ((8192, True), (8193, False)):
        folder = "x" * (length - len("cd  && apply_patch <<'EOF'"))
        script = f"cd {folder} && apply_patch <<'EOF'\n{text}\nEOF\n"
        assert len(script.partition("\n")[0]) == length
        expected = CommandPatch(f"{text}\n", folder) if found else None
        assert await find_patch(ShellGrammar(), script) == expected


# What an error shows.


def test_lines_that_were_not_found_are_shown_with_10000_characters() -> None:
    for length, shown in ((10_000, 10_000), (10_001, 10_000)):
        with pytest.raises(NotApplicable) as refused:
            apply_hunks("/a", "x\n", [Hunk((), (("-", "y" * length),))])
        assert str(refused.value) == f"Failed to find expected lines in /a:\n{'y' * shown}"


@pytest.mark.parametrize(
    ("count", "places"),
    [
        (10, "1, 3, 5, 7, 9, 11, 13, 15, 17, 19"),
        (11, "1, 3, 5, 7, 9, 11, 13, 15, 17, 19…"),
    ],
)
def test_an_ambiguous_context_is_shown_with_10_places(count: int, places: str) -> None:
    with pytest.raises(NotApplicable) as refused:
        apply_hunks("/a", "def f\nx\n" * count, [Hunk(("def f",), (("-", "x"),))])
    assert f"(lines {places})" in str(refused.value)


# What is shown of changes.


def added(text: str) -> FileUpdateChange:
    return FileUpdateChange(path="a", kind=AddPatchChangeKind(), diff=text)


def shown(diffs: list[str], room: int) -> list[str]:
    return [change.diff for change in bounded_changes(map(added, diffs), room)]


def test_diffs_are_shown_whole_up_to_the_bound_of_all_and_cut_behind_it() -> None:
    # Quotes count, and what JSON writes with more bytes.
    assert shown(["12345678"], 10) == ["12345678"]
    assert shown(["123456789"], 10) == ["12345678\n… 1 more characters are not shown"]
    assert shown(["\n\n\n\n"], 10) == ["\n\n\n\n"]
    assert shown(["\n\n\n\n\n"], 10) == ["\n\n\n\n\n"[:4] + "\n… 1 more characters are not shown"]
    assert shown(["1234", "", "12"], 12) == ["1234", "", "12"]
    assert shown(["1234", "", "123"], 12) == ["1234", "", "12\n… 1 more characters are not shown"]
    # The words of the first cut leave nothing to the second.
    assert shown(["123456789", "abc"], 10)[1] == "\n… 3 more characters are not shown"
    whole, cut = (bounded_changes([added("x" * length)])[0].diff for length in (799_998, 799_999))
    assert whole == "x" * 799_998
    assert cut.endswith("\n… 1 more characters are not shown")


def made(path: str, text: str) -> tuple[str, None, FileSnapshot]:
    return (path, None, FileSnapshot(text))


def test_the_diff_of_a_turn_has_a_million_bytes_as_json() -> None:
    def rendered(length: int) -> str:
        diff = TurnDiff()
        diff.touch(*made("a", "x" * length + "\n"))
        return diff.render()

    length = 1_000_000 - len(to_json(rendered(0)))
    assert len(to_json(rendered(length))) == 1_000_000
    assert rendered(length + 1) == "# 1 more changed file is not shown: too large\n"


def test_files_of_a_turn_share_the_bytes_of_its_diff() -> None:
    diff = TurnDiff()
    for path, length in (("a", 600_000), ("b", 600_000), ("c", 300_000)):
        diff.touch(*made(path, "x" * length))
    text = diff.render()
    assert re.findall("^diff --git a/(.)", text, re.MULTILINE) == ["a", "c"]
    assert text.endswith("# 1 more changed file is not shown: too large\n")


def test_the_files_of_a_turn_are_kept_up_to_a_bound() -> None:
    assert unified.MAX_KEPT_CHARS == 64 * MIB

    def rendered(*changes: tuple[Any, ...]) -> list[str]:
        diff = TurnDiff(max_kept_chars=10)
        for change in changes:
            diff.touch(*change)
        return re.findall("^(?:diff --git a/.|# .*)", diff.render(), re.MULTILINE)

    too_large = "# 1 more changed file is not shown: too large"
    before, after = FileSnapshot("12345"), FileSnapshot("67890")
    assert rendered(("a", before, after)) == ["diff --git a/a"]
    assert rendered(("a", before, FileSnapshot("678901"))) == [too_large]
    # What went is kept as it was; what it was in between is not.
    assert rendered(made("a", "1234567890"), made("a", "0987654321")) == ["diff --git a/a"]
    assert rendered(made("a", "12345"), made("b", "67890"), made("c", "x")) == [
        *("diff --git a/a", "diff --git a/b", too_large)
    ]
    # A file that is not kept takes no room, and stays unknown.
    assert rendered(made("a", "x" * 11), made("b", "x" * 10), ("a", after, None)) == [
        *("diff --git a/b", too_large)
    ]
    assert rendered(made("a", "x" * 9), made("a", "x" * 11), made("b", "x" * 10)) == [
        *("diff --git a/b", too_large)
    ]


# What is written.


def test_a_file_of_64_mib_can_change_and_a_larger_one_cannot(folder: Path) -> None:
    file = folder / "large"
    file.touch()
    patch = patch_of("*** Delete File: large")
    os.truncate(file, 64 * MIB + 1)
    with pytest.raises(NotApplicable, match=r"^Failed to read .*/large: it is too large$"):
        plan(folder, patch)
    os.truncate(file, 64 * MIB)
    apply(folder, patch)
    assert content(folder) == {}


def test_the_files_of_a_patch_are_taken_up_to_a_bound(folder: Path) -> None:
    assert planning.MAX_TOTAL_BYTES == 256 * MIB
    for name in "ab":
        (folder / name).write_text("hello\n")
    (folder / "link").symlink_to("a long way from here")
    (folder / "empty").touch()
    lines = [f"*** Delete File: {name}" for name in ("a", "b", "link", "empty")]
    assert len(plan(folder, patch_of(*lines), max_bytes=12).changes) == 4
    (folder / "empty").write_text("x")
    with pytest.raises(NotApplicable, match=r"/empty: it is too large$"):
        plan(folder, patch_of(*lines), max_bytes=12)


def test_temporary_files_have_a_name_of_their_own_of_bounded_length() -> None:
    assert re.fullmatch("[0-9a-f]{8}", new_token())
    assert new_token() != new_token()
    assert temporary_name("/a/b.txt", "t", 3) == ".b.txt.t-3.app-server-patch"
    assert temporary_name(f"/a/{'n' * 41}", "t", 3) == f".{'n' * 40}.t-3.app-server-patch"


def test_128_folders_stay_open_while_files_in_them_are_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = len(os.listdir("/dev/fd"))
    most = 0
    rename = os.rename

    def count(*arguments: str, **folders: Any) -> None:
        nonlocal most
        most = max(most, len(os.listdir("/dev/fd")))
        rename(*arguments, **folders)

    monkeypatch.setattr(os, "rename", count)
    lines = [line for number in range(140) for line in (f"*** Add File: {number}/f", "+x")]
    apply(folder, patch_of(*lines))
    assert len(content(folder)) == 140
    # The 128, and the one that is opened for a file of its own; none of the folders above them.
    assert most - before == 128 + 1
    assert len(os.listdir("/dev/fd")) == before


@pytest.mark.parametrize("mode", [0o640, 0o755, 0o4711, 0o600])
def test_a_file_that_is_written_has_the_rights_of_the_old_one_and_none_before(
    folder: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    file = folder / "a"
    file.write_text("old\n")
    file.chmod(mode)
    while_written: list[int] = []
    fchmod = os.fchmod

    def note(number: int, wanted: int) -> None:
        while_written.append(stat.S_IMODE(os.fstat(number).st_mode))
        fchmod(number, wanted)

    monkeypatch.setattr(os, "fchmod", note)
    umask = os.umask(0)
    try:
        apply(folder, patch_of("*** Update File: a", "-old", "+new", "*** Add File: b", "+x"))
    finally:
        os.umask(umask)
    assert while_written == [0o600]
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == {"a": mode, "b": 0o666}
    assert content(folder) == {"a": b"new\n", "b": b"x\n"}


def test_files_that_nobody_may_write_are_named_where_something_is_confined(folder: Path) -> None:
    for name, mode in (("owner", 0o600), ("group", 0o020), ("others", 0o002), ("none", 0o555)):
        (folder / name).write_text("x\n")
        (folder / name).chmod(mode)
    lines = [f"*** Delete File: {name}" for name in ("owner", "group", "others", "none")]
    assert plan(folder, patch_of(*lines)).locked == ()
    confined = plan(folder, patch_of(*lines), EffectivePolicy(writable=(str(folder),)))
    assert confined.locked == (str(folder / "none"),)


def test_nothing_is_left_open_where_a_write_fails(folder: Path) -> None:
    (folder / "a").write_text("old\n")
    planned = plan(folder, patch_of("*** Add File: x/y", "+1", "*** Delete File: a"))
    before = os.listdir("/dev/fd")
    (folder / "a").write_text("other\n")
    with pytest.raises(NotWritten, match="it has changed meanwhile"):
        write_plan(planned, new_token())
    assert os.listdir("/dev/fd") == before
    assert content(folder) == {"a": b"other\n"}
