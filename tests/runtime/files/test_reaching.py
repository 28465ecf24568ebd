"""Going to a file part by part: links, `..`, what is missing, and what is put in between."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from app_server.runtime.files.reaching import (
    MAX_FOLDERS,
    NotReached,
    PathDenied,
    folders_made,
    open_file,
    reached,
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make a folder in which all is allowed, and a secret beside it."""
    folder = tmp_path.resolve() / "root"
    folder.mkdir()
    (folder / "a.txt").write_text("a")
    (folder.parent / "secret.txt").write_text("secret")
    return folder


def within(root: Path) -> Callable[[str], bool]:
    return lambda path: Path(path).is_relative_to(root)


def where(root: Path, path: object, **options: bool) -> tuple[str, str, bool, tuple[str, ...]]:
    with reached(str(path), within(root), **options) as there:
        return there.path, there.name, there.found is not None, there.below


def test_the_real_path_is_what_counts(root: Path) -> None:
    (root / "sub").mkdir()
    (root / "in").symlink_to("sub/../a.txt")
    (root / "out").symlink_to("../secret.txt")
    (root / "gone").symlink_to(root.parent / "nothing")
    assert where(root, root / "a.txt") == (f"{root}/a.txt", "a.txt", True, ())
    assert where(root, root / "in") == (f"{root}/a.txt", "a.txt", True, ())
    assert where(root, f"{root}/sub/.././/a.txt") == (f"{root}/a.txt", "a.txt", True, ())
    assert where(root, root / "out", follows=False) == (f"{root}/out", "out", True, ())
    for path in ("out", "../secret.txt", "sub/../../secret.txt", "gone", "../nothing"):
        with pytest.raises(PathDenied):
            where(root, f"{root}/{path}")
        with pytest.raises(PathDenied):
            where(root, f"{root}/{path}", may_be_missing=True)
    with pytest.raises(NotReached, match=r"^No such file or directory$"):
        where(root, root / "nothing")


def test_what_is_missing_is_named_and_made(root: Path) -> None:
    (root / "link").symlink_to("new")
    path = f"{root}/new/deep/file"
    assert where(root, path, may_be_missing=True) == (path, "new", False, ("deep", "file"))
    assert where(root, f"{root}/link/deep/file", may_be_missing=True)[0] == path
    assert where(root, f"{root}/b.txt", may_be_missing=True) == (
        f"{root}/b.txt",
        "b.txt",
        False,
        (),
    )
    with pytest.raises(NotReached):
        where(root, f"{root}/new/../../secret.txt", may_be_missing=True)
    with (
        reached(path, within(root), may_be_missing=True) as there,
        folders_made(there) as (folder, name),
    ):
        opened = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, dir_fd=folder)
        os.write(opened, b"made")
        os.close(opened)
    assert Path(path).read_text() == "made"


def test_a_link_that_comes_meanwhile_is_not_followed(root: Path) -> None:
    outside = root.parent / "outside"
    outside.mkdir()
    path = f"{root}/new/deep/file"
    with reached(path, within(root), may_be_missing=True) as there:
        (root / "new").symlink_to(outside)
        with pytest.raises(OSError, match="Not a directory"), folders_made(there):
            raise AssertionError("it was followed")
    assert list(outside.iterdir()) == []


def test_a_folder_that_is_moved_away_is_still_the_one_that_was_asked_about(root: Path) -> None:
    (root / "sub").mkdir()
    outside = root.parent / "outside"
    outside.mkdir()
    with reached(f"{root}/sub/file", within(root), may_be_missing=True) as there:
        (root / "sub").rename(root / "moved")
        (root / "sub").symlink_to(outside)
        opened = os.open(there.name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, dir_fd=there.folder)
        os.close(opened)
    assert [path.name for path in (root / "moved").iterdir()] == ["file"]
    assert list(outside.iterdir()) == []


def test_bounds_and_what_is_no_file(root: Path) -> None:
    (root / "loop").symlink_to("loop")
    os.mkfifo(root / "pipe")
    deep = root
    for _ in range(MAX_FOLDERS):
        deep = deep / "d"
    for path, reason in (
        (root / "loop", "Too many levels of symbolic links"),
        (root / "pipe", "it is not a file"),
        (root, "it is not a file"),
        (root / "a.txt" / "x", "Not a directory"),
        (root / "a\0b", "it cannot be read"),
    ):
        with pytest.raises(NotReached, match=f"^{reason}$"):
            open_file(str(path), within(root))
    deep.mkdir(parents=True)
    with pytest.raises(NotReached, match=r"^it cannot be read$"):
        where(root, deep)


def test_no_descriptor_is_left_open(root: Path) -> None:
    (root / "a" / "b").mkdir(parents=True)

    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    before = count()
    where(root, root / "a" / "b" / ".." / "b")
    with open_file(f"{root}/a.txt", within(root)) as file:
        assert file.read() == b"a"
    with pytest.raises(NotReached):
        where(root, root / "a" / "b" / "c" / "d")
    with (
        reached(f"{root}/x/y", within(root), may_be_missing=True) as there,
        folders_made(there),
    ):
        pass
    assert count() == before
