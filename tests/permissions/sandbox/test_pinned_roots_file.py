"""Pinned places in a home: all its servers know the same, one after another and at once."""

import errno
import json
import logging
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app_server.permissions.sandbox import roots as module
from app_server.permissions.sandbox.roots import (
    FILE,
    LOCK,
    MAX_PINNED,
    NOT_A_FOLDER,
    Entry,
    PinnedRoots,
    PinnedRootsFile,
    ResolvedRoot,
    RootChanged,
)
from app_server.runtime.files.secret import StoreFailed, lock_held


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Make a workspace with a folder in it, beside a home."""
    root = tmp_path.resolve() / "ws"
    (root / "sub").mkdir(parents=True)
    (root.parent / "outside").mkdir()
    (root.parent / "home").mkdir()
    return root


def server(root: Path, max_pinned: int = MAX_PINNED) -> PinnedRoots:
    """Start a server of the home."""
    return PinnedRoots(PinnedRootsFile(root.parent / "home"), max_pinned)


def lines(root: Path) -> list[Any]:
    return [json.loads(line) for line in (root.parent / "home" / FILE).read_text().splitlines()]


def identity(path: Path) -> list[int]:
    found = path.stat()
    return [found.st_dev, found.st_ino]


def test_what_is_written_says_what_a_place_was(root: Path) -> None:
    link, sub = root.parent / "link", root / "sub"
    link.symlink_to("ws/sub")
    places_ = server(root)
    places_.pin([str(link), f"{root}/no"])
    places_.can_be_written(["/x", str(root)])
    expected = [
        {"path": str(link), "real": str(sub), "identity": identity(sub), "through": [str(root)]},
        {"path": f"{root}/no", "real": f"{root}/no", "identity": None, "through": [str(root)]},
        {"writable": [str(root), "/x"]},
    ]
    assert lines(root) == expected
    # Nothing is written twice.
    places_.pin([str(link), f"{root}/no"])
    places_.can_be_written([str(root)])
    places_.checked(str(link))
    again = server(root)
    again.pin([str(link), f"{root}/no"])
    again.can_be_written(["/x"])
    again.checked(str(link))
    assert lines(root) == expected
    assert (root.parent / "home" / FILE).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("is_restarted", [True, False])
def test_another_server_refuses_what_one_has_held(root: Path, is_restarted: bool) -> None:
    sub, other = root / "sub", server(root)
    other.look_at([str(root)])
    one = server(root)
    one.pin([str(sub)])
    one.can_be_written([str(root)])
    sub.rename(root / "old")
    sub.symlink_to(root.parent / "outside")
    if is_restarted:
        other = server(root)
    for anew in (False, True):
        other.pin([str(sub)], anew=anew)
        with pytest.raises(RootChanged, match=f"`{sub}` led to `{sub}` .* leads to `.*/outside`"):
            other.checked(str(sub))
    sub.unlink()
    sub.mkdir()
    other.pin([str(sub)], anew=False)
    with pytest.raises(RootChanged, match="is not the folder that it was"):
        other.checked(str(sub))
    # Who names it anew does so for all servers.
    other.pin([str(sub)])
    assert one.checked(str(sub)).identity == tuple(identity(sub))


def stored(root: Path, **changes: Any) -> PinnedRoots:
    """Start a server that reads of a folder within reach, with another identity than it has."""
    sub = root / "sub"
    line = {"path": str(sub), "real": str(sub), "identity": identity(sub), "through": [str(root)]}
    said = [{**line, **changes}, {"writable": [str(root)]}]
    text = "".join(f"{json.dumps(one)}\n" for one in said)
    (root.parent / "home" / FILE).write_text(text)
    return server(root)


def test_a_disk_with_another_number_keeps_nobody_from_a_folder(root: Path) -> None:
    sub = root / "sub"
    device, inode = identity(sub)
    for changed in ([device + 1, inode], [device + 1, inode + 1], [device, inode]):
        places_ = stored(root, identity=changed)
        assert places_.checked(str(sub)).identity == (device, inode)
        # From now on it is this one, whatever the numbers.
        sub.rename(root / f"old{changed}")
        sub.mkdir()
        with pytest.raises(RootChanged):
            places_.checked(str(sub))
        with pytest.raises(RootChanged):
            server(root).checked(str(sub))
        sub.rmdir()
        (root / f"old{changed}").rename(sub)
    for changed in ([device, inode + 1], list(NOT_A_FOLDER)):
        with pytest.raises(RootChanged, match="is not the folder"):
            stored(root, identity=changed).checked(str(sub))
    # A file is no folder of another disk.
    sub.rmdir()
    sub.touch()
    with pytest.raises(RootChanged, match="is not the folder"):
        stored(root, identity=[device + 1, inode]).checked(str(sub))


def test_a_link_is_refused_whatever_the_number_of_the_disk(root: Path) -> None:
    sub = root / "sub"
    device, inode = identity(sub)
    sub.rename(root / "old")
    sub.symlink_to("old")
    with pytest.raises(RootChanged, match="led to"):
        stored(root, identity=[device + 1, inode]).checked(str(sub))


@pytest.mark.parametrize(
    "damage",
    [
        b"\0\xff\n",
        b"[]\n",
        b"7\n",
        b"null\n",
        b"[" * 100_000 + b"\n",
        b'{"path": "/a"}\n',
        b'{"path": 1, "real": "/a", "identity": null, "through": []}\n',
        b'{"path": "a", "real": "/a", "identity": null, "through": []}\n',
        b'{"path": "/a", "real": "/a", "identity": [1], "through": []}\n',
        b'{"path": "/a", "real": "/a", "identity": 1, "through": []}\n',
        b'{"path": "/a", "real": "/a", "identity": null, "through": [1]}\n',
        b'{"writable": 1}\n',
        b'{"writable": ["x"]}\n',
        b'{"path": "/a", "re',
    ],
)
def test_damaged_lines_are_left_out(root: Path, damage: bytes, caplog: Any) -> None:
    server(root).pin([str(root)])
    path = root.parent / "home" / FILE
    path.write_bytes(damage + path.read_bytes() if damage.endswith(b"\n") else damage)
    places_ = server(root)
    places_.can_be_written([str(root)])
    places_.pin([str(root / "sub")])
    # What a server wrote that died in the middle is ended by the next one.
    file = PinnedRootsFile(root.parent / "home")
    found = file.news()
    assert found[-2:] == [
        frozenset([str(root)]),
        (str(root / "sub"), places_.checked(str(root / "sub"))),
    ]
    assert caplog.messages[-1] == f"1 lines of {path} are damaged"


def test_names_that_are_no_text_are_kept(root: Path) -> None:
    name = os.fsdecode(b"/\xff\n\xe2\x80\xa8")
    places_ = server(root)
    places_.pin([name])
    places_.can_be_written([name])
    assert PinnedRootsFile(root.parent / "home").news() == [
        (name, ResolvedRoot(name, None, ("/",))),
        frozenset([name]),
    ]


def places(numbers: range) -> list[Entry]:
    return [(f"/{number}", ResolvedRoot(f"/{number}", (1, number), ("/",))) for number in numbers]


def test_a_full_file_is_written_anew(root: Path) -> None:
    home = root.parent / "home"
    # Every line has as many bytes.
    size = (
        len(json.dumps({"path": "/10", "real": "/10", "identity": [1, 10], "through": ["/"]})) + 1
    )
    one, other = (PinnedRootsFile(home, full_bytes=4 * size) for _ in range(2))
    assert one.add(places(range(10, 14)), []) == []
    assert other.add(places(range(14, 15)), []) == places(range(10, 14))
    assert len(lines(root)) == 5
    # All that somebody knows, then what is new to it, then what it adds; the last that have room.
    assert one.add(places(range(20, 21)), places(range(12, 14))) == places(range(14, 15))
    expected = [*places(range(12, 15)), *places(range(20, 21))]
    assert PinnedRootsFile(home).news() == expected
    assert (one.news(), other.news(), other.news()) == ([], expected, [])
    assert one.write(places(range(30, 35))) == []
    assert PinnedRootsFile(home).news() == places(range(31, 35))
    assert one.add(places(range(40, 41)), places(range(31, 35))) == []
    assert PinnedRootsFile(home).news() == [*places(range(31, 35)), *places(range(40, 41))]


@pytest.mark.parametrize("beyond", [0, 1])
def test_no_more_of_a_file_is_read_than_its_bound(root: Path, beyond: int) -> None:
    home = root.parent / "home"
    PinnedRootsFile(home).add(places(range(10, 11)), [])
    line = (home / FILE).read_bytes()
    (home / FILE).write_bytes(b"#" * ((32 << 20) - 1 - len(line) + beyond) + b"\n" + line)
    assert PinnedRootsFile(home).news() == ([] if beyond else places(range(10, 11)))


def test_a_file_of_eight_mib_is_full(root: Path) -> None:
    home = root.parent / "home"
    for beyond in (0, 1):
        (home / FILE).write_bytes(b"#" * ((8 << 20) - 1 + beyond) + b"\n")
        file = PinnedRootsFile(home)
        file.add(places(range(10, 11)), places(range(5, 6)))
        is_appended = (home / FILE).stat().st_size > 8 << 20
        assert is_appended is (beyond == 0)
    assert file.news() == []
    assert PinnedRootsFile(home).news() == places(range(5, 6)) + places(range(10, 11))


def test_a_file_that_somebody_cut_is_read_anew(root: Path) -> None:
    home = root.parent / "home"
    file = PinnedRootsFile(home)
    file.add(places(range(10, 14)), [])
    text = (home / FILE).read_bytes()
    (home / FILE).write_bytes(text[: len(text) // 4])
    assert (file.news(), file.news()) == (places(range(10, 11)), [])


def test_what_cannot_be_read_is_nothing_new(
    root: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    home = root.parent / "home"
    PinnedRootsFile(home).add(places(range(10, 11)), [])

    def refuse(path: Path) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(module, "open_regular", refuse)
        assert PinnedRootsFile(home).news() == []
    assert caplog.messages == [
        f"the pinned places of {home / FILE} cannot be read: Permission denied"
    ]


def test_a_file_that_is_gone_when_it_was_written_anew_is_a_failed_store(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = root.parent / "home"
    file = PinnedRootsFile(home)

    def write_and_lose(path: Path, content: bytes) -> None:
        path.unlink(missing_ok=True)

    monkeypatch.setattr(module, "write_private", write_and_lose)
    with pytest.raises(StoreFailed, match=f"{FILE}: No such file or directory"):
        file.write(places(range(10, 11)))


class Meanwhile(PinnedRootsFile):
    """A file to which another server appends right before this one does."""

    def __init__(self, home: Path, entries: list[Entry]) -> None:
        super().__init__(home)
        self._home = home
        self._entries = entries

    def add(self, entries: Sequence[Entry], everything: Iterable[Entry]) -> list[Entry]:
        PinnedRootsFile(self._home).add(self._entries, [])
        self._entries = []
        return super().add(entries, everything)


def test_what_another_server_appends_meanwhile_is_known(root: Path) -> None:
    home, sub = root.parent / "home", root / "sub"
    other = (str(sub), ResolvedRoot("/elsewhere", None, ("/",)))
    places_ = PinnedRoots(Meanwhile(home, [other, (str(root), other[1]), frozenset([str(root)])]))
    places_.pin([str(sub)])
    # What was appended last counts, as it does for a server that reads the file.
    for server_ in (places_, server(root)):
        assert server_.look_at([str(sub), str(root)]) == [str(sub), "/elsewhere"]
    sub.rename(root / "old")
    sub.mkdir()
    with pytest.raises(RootChanged):
        places_.checked(str(sub))


def test_what_another_server_knows_is_not_written_again(root: Path) -> None:
    one, other = server(root), server(root)
    one.can_be_written([str(root)])
    other.can_be_written([str(root)])
    one.pin([str(root)])
    other.pin([str(root)])
    one.pin([str(root / "sub")])
    assert other.look_at([str(root / "sub")]) == [str(root / "sub")]
    (root.parent / "home" / FILE).rename(root / "moved")
    other.checked(str(root / "sub"))
    other.renew()
    assert not (root.parent / "home" / FILE).exists()
    assert len((root / "moved").read_text().splitlines()) == 3


def test_an_exec_server_sets_no_places_of_other_servers_anew(root: Path) -> None:
    one, other, sub = server(root), server(root), root / "sub"
    one.pin([str(sub)])
    one.can_be_written([str(root)])
    sub.rename(root / "old")
    sub.mkdir()
    other.look_at([str(sub)])
    other.renew()
    for server_ in (one, other):
        with pytest.raises(RootChanged, match="is not the folder that it was"):
            server_.checked(str(sub))
    # Its client names what it works with by connecting.
    other.renew()
    assert one.checked(str(sub)).identity == tuple(identity(sub))


def test_what_is_read_has_the_bounds_of_what_is_remembered(root: Path) -> None:
    gone = root / "gone"
    written = frozenset(map(str, (gone, root / "sub", root.parent / "outside")))
    PinnedRootsFile(root.parent / "home").add([written], [])
    one = server(root, max_pinned=2)
    # Of too many those that are gone are forgotten.
    one.pin([f"{gone}/in"])
    for name in ("first", "second"):
        (gone / "in").mkdir(parents=True)
        assert one.checked(f"{gone}/in").identity == tuple(identity(gone / "in"))
        gone.rename(root / name)


def test_a_file_that_did_not_grow_is_not_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = PinnedRootsFile(root.parent / "home")
    file.add(places(range(10, 11)), [])
    read, synced = PinnedRootsFile(root.parent / "home"), list[Path]()
    assert read.news() == places(range(10, 11))
    with monkeypatch.context() as patched:
        patched.delattr(module, "open_regular")
        assert (file.news(), read.news()) == ([], [])
        patched.setattr(module, "sync_folder", synced.append)
        file.add(places(range(11, 12)), [])
    assert synced == [root.parent / "home"]


def test_a_folder_on_another_disk_is_another_one_while_a_server_runs(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sub = str(root / "sub")
    one = server(root)
    one.pin([sub])
    one.can_be_written([str(root)])
    found = one.checked(sub)
    assert found.identity is not None
    elsewhere = replace(found, identity=(found.identity[0] + 1, found.identity[1]))

    def look(path: str) -> ResolvedRoot:
        return elsewhere

    monkeypatch.setattr(module, "look", look)
    with pytest.raises(RootChanged, match="is not the folder that it was"):
        one.checked(sub)
    assert server(root).checked(sub) == elsewhere


@pytest.mark.parametrize("what", ["link", "folder", "pipe"])
def test_what_is_no_regular_file_is_not_written(
    root: Path, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    home = root.parent / "home"
    target = home / "target"
    if what == "link":
        target.write_bytes(b"")
        (home / FILE).symlink_to(target)
    elif what == "folder":
        (home / FILE).mkdir()
    else:
        os.mkfifo(home / FILE)
    places_ = server(root)
    with caplog.at_level(logging.WARNING):
        places_.pin([str(root / "sub")])
        places_.can_be_written([str(root)])
    # It holds in this server, and is said once.
    assert len([text for text in caplog.messages if "are not stored" in text]) == 1
    (root / "sub").rename(root / "old")
    (root / "sub").mkdir()
    with pytest.raises(RootChanged):
        places_.checked(str(root / "sub"))
    assert what != "link" or target.read_bytes() == b""


def test_what_could_not_be_written_is_written_later(root: Path) -> None:
    home = root.parent / "home"
    (home / FILE).mkdir()
    places_ = server(root)
    places_.pin([str(root)])
    (home / FILE).rmdir()
    other = server(root)
    other.can_be_written([str(root)])
    places_.pin([str(root / "sub")])
    assert [line.get("path") for line in lines(root)] == [str(root), str(root / "sub"), None]
    places_.pin([f"{root}/no"])
    assert lines(root)[-1]["path"] == f"{root}/no"
    assert len(lines(root)) == 4


def test_a_lock_that_others_keep_is_waited_for_within_a_bound(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = root.parent / "home"
    places_ = PinnedRoots(PinnedRootsFile(home, lock_s=0.0))
    with lock_held(home / LOCK, 0):
        places_.pin([str(root)])
        assert "another process has held it" in caplog.messages[-1]
    places_.pin([str(root / "sub")])
    assert [line.get("path") for line in lines(root)] == [str(root), str(root / "sub"), None]
