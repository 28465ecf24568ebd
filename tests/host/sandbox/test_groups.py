"""Cgroups of commands in folders of the test's, and filters at their bounds."""

import os
import platform
import shutil
import struct
import time
from pathlib import Path

import pytest

from app_server.host.sandbox.linux import process_limits
from app_server.host.sandbox.linux.process_limits import ServerGroup, limiting_program
from app_server.host.sandbox.linux.seccomp import assemble, end, jump_if, load

PIDS = """\
25 1 0:22 / /sys/fs/cgroup ro - tmpfs tmpfs ro
26 1 0:23 / /else rw - other source rw,name=a b c
30 25 0:26 / {root}/v1 rw shared:9 - cgroup cgroup rw,cpu,pids
31 25 0:27 / {root}/v2 rw - cgroup2 cgroup rw,nsdelegate
32 25 0:28 / {root}/later rw - cgroup2 cgroup rw
"""


@pytest.fixture
def lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, str]:
    """Give what `/proc` says, to be changed; cgroups are folders below the test's."""
    files = {
        "/proc/self/mountinfo": PIDS.replace("{root}", str(tmp_path)),
        "/proc/self/cgroup": "4:cpu:/other\n3:cpu,pids:/a/b\n0::/c/d\n",
    }
    real = process_limits._lines

    def read(path: str | Path) -> list[str]:
        known = files.get(str(path))
        return list(real(path)) if known is None else known.splitlines()

    monkeypatch.setattr(process_limits, "_lines", read)
    return files


@pytest.mark.parametrize(
    ("cgroup", "children", "parents"),
    [
        ("3:cpu,pids:/a/b\n", {}, ["v1/a/b"]),
        ("3:cpu:/a/b\n", {}, []),
        ("0::/c/d\n", {}, []),
        ("0::/c/d\n", {"v2/c": "cpu pids"}, ["v2/c"]),
        ("0::/c/d\n", {"v2/c/d": "pids"}, ["v2/c/d"]),
        ("0::/c/d\n", {"v2/c/d": "pids", "v2/c": "pids"}, ["v2/c/d", "v2/c"]),
        ("0::/c/d\n", {"v2/c": "cpu", "v2": "pids", "later/c": "pids"}, []),
        ("3:pids:/a\n0::/c\n", {"v2/c": "pids"}, ["v1/a", "v2/c"]),
        ("3:pids:/a:b:c\n", {}, ["v1/a:b:c"]),
        ("", {}, []),
    ],
)
def test_a_group_is_made_where_processes_can_be_counted(
    tmp_path: Path,
    lines: dict[str, str],
    cgroup: str,
    children: dict[str, str],
    parents: list[str],
) -> None:
    lines["/proc/self/cgroup"] = cgroup
    for place, words in children.items():
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
        (tmp_path / place / "cgroup.subtree_control").write_text(words + "\n")
    found = [str(path.relative_to(tmp_path)) for path in process_limits.possible_parents()]
    assert found == parents


class Groups:
    """Folders in place of cgroups: what the kernel makes in one is made, and goes with it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, parent: Path) -> None:
        self.parent = parent
        self.busy = 0
        self.entered: list[str] = []
        self.limits: list[str] = []
        self.slept: list[float] = []
        self.refused = False
        parent.mkdir()
        monkeypatch.setattr(process_limits, "possible_parents", lambda: iter([parent]))
        monkeypatch.setattr(process_limits, "limiting_program", tuple)
        monkeypatch.setattr(process_limits, "failure_of", self.enter)
        monkeypatch.setattr(time, "sleep", self.slept.append)
        monkeypatch.setattr(Path, "rmdir", lambda path: self.remove(path))

    def enter(self, command: tuple[str, ...]) -> str | None:
        self.entered.append(command[-1])
        return "Permission denied" if self.refused else None

    def remove(self, path: Path) -> None:
        if self.busy:
            self.busy -= 1
            raise OSError(16, "Device or resource busy")
        limit = path / "pids.max"
        if limit.exists():
            self.limits.append(limit.read_text())
            limit.unlink()
        os.rmdir(path)

    def names(self) -> list[str]:
        return sorted(os.listdir(self.parent))


@pytest.fixture
def groups(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Groups:
    return Groups(monkeypatch, tmp_path / "parent")


def test_a_server_has_one_group_until_it_is_removed(groups: Groups) -> None:
    group = ServerGroup()
    entrance = group.entrance()
    assert entrance is not None
    assert [group.entrance(), group.entrance()] == [entrance, entrance]
    assert groups.entered == [entrance]
    (name,) = groups.names()
    assert entrance == str(groups.parent / name / "cgroup.procs")
    assert name.split(".")[:2] == ["app-server", str(os.getpid())]
    group.remove()
    group.remove()
    assert (groups.names(), groups.limits, groups.slept) == ([], ["8192"], [])
    # Another one is made when it is asked for again.
    again = group.entrance()
    assert again not in (None, entrance)
    group.remove()
    assert groups.names() == []


def test_a_group_that_is_still_counted_is_removed_later(groups: Groups) -> None:
    group = ServerGroup()
    group.entrance()
    groups.busy = 19
    group.remove()
    assert (groups.names(), groups.slept) == ([], [0.01] * 19)
    group.entrance()
    groups.busy = 20
    group.remove()
    assert (len(groups.names()), len(groups.slept)) == (1, 19 + 20)


def test_a_group_that_nobody_can_enter_is_removed(groups: Groups) -> None:
    groups.refused = True
    group = ServerGroup()
    assert [group.entrance(), group.entrance()] == [None, None]
    # It is tried once.
    assert (groups.names(), len(groups.entered)) == ([], 1)


def test_where_no_group_can_be_made_none_is_entered(groups: Groups) -> None:
    groups.parent.rmdir()
    assert (ServerGroup().entrance(), groups.entered) == (None, [])


def test_a_group_that_somebody_else_has_removed_is_not_waited_for(groups: Groups) -> None:
    group = ServerGroup()
    entrance = group.entrance()
    assert entrance is not None
    Path(entrance).parent.rmdir()
    group.remove()
    assert groups.slept == []


def test_where_a_limit_of_resources_holds_there_is_no_group(
    groups: Groups, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process_limits, "limiting_program", lambda: ("prlimit",))
    assert ServerGroup().entrance() is None
    assert (groups.names(), groups.entered) == ([], [])


def test_groups_of_servers_that_were_killed_are_removed(groups: Groups) -> None:
    for name in (f"app-server.{2**22 + 1}.0", f"app-server.{os.getpid()}.99", "other.1.0"):
        (groups.parent / name).mkdir()
    ServerGroup().entrance()
    assert groups.names()[-1] == "other.1.0"
    assert len(groups.names()) == 3
    assert not any(str(2**22 + 1) in name for name in groups.names())


@pytest.mark.parametrize(
    ("kernel", "user", "program", "limited"),
    [
        ("5.14.0-generic", 1000, "/bin/prlimit", True),
        ("5.13.19", 1000, "/bin/prlimit", False),
        ("6.1", 1000, "/bin/prlimit", True),
        ("6.1", 0, "/bin/prlimit", False),
        ("6.1", 1000, None, False),
        ("unknown", 1000, "/bin/prlimit", False),
    ],
)
def test_a_limit_of_resources_holds_for_users_on_newer_kernels(
    monkeypatch: pytest.MonkeyPatch, kernel: str, user: int, program: str | None, limited: bool
) -> None:
    monkeypatch.setattr(platform, "release", lambda: kernel)
    monkeypatch.setattr(os, "getuid", lambda: user)
    monkeypatch.setattr(shutil, "which", lambda name: program)
    command = ("/bin/prlimit", "--nproc=2048:2048", "--")
    assert limiting_program() == (command if limited else ())


# Filters.


def test_a_jump_passes_over_255_instructions() -> None:
    program = assemble([jump_if("equal", 1, "far"), *[load(0)] * 255, "far", end(1)])
    assert len(program) == 257 * 8
    assert struct.unpack_from("=HBBI", program) == (0x15, 255, 0, 1)
    with pytest.raises(ValueError, match=r"^there is no jump to `far` from 0$"):
        assemble([jump_if("equal", 1, "far"), *[load(0)] * 256, "far", end(1)])
    next_one = assemble([jump_if("above", 1, "here"), "here", end(1)])
    assert struct.unpack_from("=HBBI", next_one) == (0x25, 0, 0, 1)


def test_a_filter_has_4096_instructions() -> None:
    assert len(assemble([end(1)] * 4096)) == 4096 * 8
    with pytest.raises(ValueError, match=r"^4097 instructions, and 4096 are allowed$"):
        assemble([end(1)] * 4097)
