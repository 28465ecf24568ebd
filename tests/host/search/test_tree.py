"""host.search: which files are listed, and how lists stay fresh."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from app_server.host.files.work import Stop, Stopped
from app_server.host.search.listing import Tree
from tests.support.files.search import files_of, listed, write
from tests.support.harness import claim


@pytest.fixture(autouse=True)
def without_a_user(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have no exclusions of the user who runs the tests."""
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)


@claim("search-files:never-git")
def test_git_folders_and_files_are_never_listed(tmp_path: Path) -> None:
    write(
        tmp_path / "r", {".git/HEAD": "", "in/.git": "gitdir: elsewhere", "in/a": "", ".gitx": ""}
    )
    assert listed(tmp_path / "r") == [".gitx", "in/a"]


@claim("search-files:links")
def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    root = tmp_path / "r"
    write(root, {"a/file": "", "a/in/deep": ""})
    (root / "a" / "up").symlink_to("..")
    (root / "a" / "self").symlink_to(".")
    (root / "b").symlink_to("a/in")
    (root / "c").symlink_to("a/file")
    (root / "gone").symlink_to("nowhere")
    os.mkfifo(root / "pipe")
    assert listed(root) == ["a/file", "a/in/deep", "b/deep", "c"]


@claim("search-files:bounded")
def test_what_is_above_the_bounds_is_left_out(tmp_path: Path) -> None:
    write(tmp_path / "r", {f"in/{number}": "" for number in range(20)})
    assert len(listed(tmp_path / "r", max_entries=10)) == 9
    write(tmp_path / "d", {"1/2/3/4/deep": "", "1/high": ""})
    assert listed(tmp_path / "d", max_depth=4) == ["1/high"]


def remove(path: Path) -> None:
    path.unlink()


def replace_by_a_folder(root: Path) -> None:
    (root / "in" / "b").unlink()
    write(root, {"in/b/x": ""})


CHANGES: list[tuple[str, Callable[[Path], object], list[str]]] = [
    ("nothing", lambda root: None, ["a", "in/b", "in/deep/c"]),
    (
        "a new file",
        lambda root: write(root, {"in/deep/d": ""}),
        ["a", "in/b", "in/deep/c", "in/deep/d"],
    ),
    ("a new folder", lambda root: write(root, {"n/e": ""}), ["a", "in/b", "in/deep/c", "n/e"]),
    ("a file gone", lambda root: remove(root / "in" / "b"), ["a", "in/deep/c"]),
    (
        "a folder renamed",
        lambda root: (root / "in").rename(root / "on"),
        ["a", "on/b", "on/deep/c"],
    ),
    ("a file ignored", lambda root: write(root, {".ignore": "b\n"}), [".ignore", "a", "in/deep/c"]),
    (
        "a folder ignored",
        lambda root: write(root, {"in/.ignore": "deep\n"}),
        ["a", "in/.ignore", "in/b"],
    ),
    (
        "a file for a folder",
        replace_by_a_folder,
        ["a", "in/b/x", "in/deep/c"],
    ),
]


@claim("search-files:fresh")
@pytest.mark.parametrize(
    ("change", "expected"), [c[1:] for c in CHANGES], ids=[c[0] for c in CHANGES]
)
@pytest.mark.parametrize("is_old", [True, False], ids=["old", "new"])
def test_a_list_is_brought_up_to_date(
    tmp_path: Path, change: Callable[[Path], object], expected: list[str], is_old: bool
) -> None:
    root = tmp_path / "r"
    write(root, {"a": "", "in/b": "", "in/deep/c": ""})
    if is_old:
        for path in (root, root / "in", root / "in" / "deep"):
            os.utime(path, (1, 1))
    tree = Tree(root)
    tree.refresh(Stop())
    change(root)
    tree.refresh(Stop())
    assert files_of(tree) == expected


@claim("search-files:fresh")
def test_changed_patterns_count_at_once(tmp_path: Path) -> None:
    root = tmp_path / "r"
    write(root, {".ignore": "b\n", "a": "", "in/b": "", "in/c": ""})
    tree = Tree(root)
    for text, expected in (
        ("b\n", ["a", "in/c"]),
        ("c\n", ["a", "in/b"]),
        ("", ["a", "in/b", "in/c"]),
    ):
        write(root, {".ignore": text})
        tree.refresh(Stop())
        assert files_of(tree) == [".ignore", *expected]


@claim("search-files:fresh")
def test_a_root_may_come_and_go(tmp_path: Path) -> None:
    tree = Tree(tmp_path / "r")
    assert not tree.refresh(Stop())
    write(tmp_path / "r", {"a": ""})
    assert tree.refresh(Stop())
    assert files_of(tree) == ["a"]
    (tmp_path / "r").rename(tmp_path / "s")
    assert tree.refresh(Stop())
    assert files_of(tree) == []


class StopLate(Stop):
    """Is set once everything has been read."""

    def __init__(self) -> None:
        super().__init__()
        self.checks = 0

    def check(self) -> None:
        super().check()
        self.checks += 1
        if self.checks == 11:
            raise Stopped


@claim("search-files:cancelled")
def test_a_list_that_was_not_finished_is_gone_on_with(tmp_path: Path) -> None:
    write(tmp_path / "r", {f"{number}/a": "" for number in range(10)})
    tree, stop = Tree(tmp_path / "r"), Stop()
    with pytest.raises(Stopped):
        tree.refresh(stop, stop.set)
    assert files_of(tree) == []
    with pytest.raises(Stopped):
        tree.refresh(StopLate())
    assert tree.refresh(Stop())
    assert len(files_of(tree)) == 10
