"""What a sandbox is asked to do, without a command in it: its words, what is open, what is left."""

import fcntl
import json
import os
import platform
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from app_server.host.sandbox import machine_sandbox as launchers
from app_server.host.sandbox import wrapped_command
from app_server.host.sandbox.linux import placeholders
from app_server.host.sandbox.linux import sandbox as mounting
from app_server.host.sandbox.linux.placeholders import Placeholder, PlaceholderRecords
from app_server.host.sandbox.linux.sandbox import (
    MAX_MOUNTS,
    PROGRAM,
    Bubblewrap,
    TooManyMounts,
    mounts,
)
from app_server.host.sandbox.linux.seccomp import ARCHITECTURES, Sockets, seccomp_filter
from app_server.host.sandbox.machine_sandbox import MachineSandbox
from app_server.host.sandbox.macos import PROGRAM as SANDBOX_EXEC
from app_server.host.sandbox.proxied import proxy_variables
from app_server.host.sandbox.wrapped_command import SandboxUnavailable, failure_of
from app_server.permissions.network import NetworkPolicy
from app_server.permissions.sandbox.policy import PLACEHOLDER_MODE, EffectivePolicy, resolved

CLOSED = EffectivePolicy(writable=(), network=False)


def open_fds() -> list[str]:
    return sorted(os.listdir("/proc/self/fd"))


# Which sandbox, and with which words.


@pytest.mark.parametrize(
    ("system", "tried"),
    [
        ("linux", ["/one/bwrap", "/other/bwrap"]),
        ("darwin", [SANDBOX_EXEC]),
        ("freebsd14", []),
    ],
)
def test_each_system_has_its_sandboxes_and_a_try_leaves_nothing_open(
    monkeypatch: pytest.MonkeyPatch, system: str, tried: list[str]
) -> None:
    seen: list[str] = []

    def fail(argv: Sequence[str], pass_fds: Sequence[int] = ()) -> str:
        seen.extend(word for word in argv if word in tried)
        return "no"

    monkeypatch.setattr("sys.platform", system)
    monkeypatch.setattr(launchers, "bubblewraps", lambda: ["/one/bwrap", "/other/bwrap"])
    monkeypatch.setattr(launchers, "failure_of", fail)
    before = open_fds()
    with pytest.raises(SandboxUnavailable) as refused:
        MachineSandbox().sandbox()
    assert (seen, open_fds()) == (tried, before)
    failures = "; ".join(f"{program}: no" for program in tried)
    wanted = f"no sandbox works on this machine ({failures}): " if tried else "no sandbox is inst"
    assert str(refused.value).startswith(wanted)


@pytest.mark.parametrize("pid_max", [None, 4000])
@pytest.mark.parametrize("policy", [None, NetworkPolicy()])
def test_a_program_comes_before_bubblewrap_where_something_is_to_be_made(
    policy: NetworkPolicy | None, pid_max: int | None
) -> None:
    sandbox = Bubblewrap("/bwrap")
    sandbox.limit, sandbox.pid_max = ("/prlimit", "--"), pid_max
    before = open_fds()
    wrapped = sandbox.wrap(("true",), "/", replace(CLOSED, proxy=policy), tty=False)
    argv = list(wrapped.argv)
    first = argv[2 : argv.index("/bwrap")]
    assert (argv[:2], argv[-2:]) == (["/prlimit", "--"], ["--", "true"])
    if policy is None and pid_max is None:
        assert first == []
    else:
        program, *wanted = first[3:]
        server = "-" if policy is None else str(wrapped.pass_fds[1])
        bound = "-" if pid_max is None else "4000"
        assert (program, wanted) == (str(PROGRAM), [server, "43128", bound, "--"])
    assert (wrapped.network is None) is (policy is None)
    wrapped.close()
    assert open_fds() == before
    if wrapped.network is not None:
        assert wrapped.network.fileno() == -1


@pytest.mark.parametrize(
    ("sandbox_policy", "sockets"),
    [
        (CLOSED, "none"),
        (replace(CLOSED, network=True), "all"),
        (replace(CLOSED, proxy=NetworkPolicy()), "own"),
        (replace(CLOSED, network=True, proxy=NetworkPolicy()), "own"),
    ],
)
def test_the_filter_is_that_of_the_network(
    sandbox_policy: EffectivePolicy, sockets: Sockets
) -> None:
    sandbox = Bubblewrap("/bwrap")
    sandbox.pid_max = None
    wrapped = sandbox.wrap(("true",), "/", sandbox_policy, tty=False)
    try:
        place = wrapped.argv.index("--seccomp")
        content = os.read(int(wrapped.argv[place + 1]), 1 << 16)
    finally:
        wrapped.close()
    assert content == seccomp_filter(ARCHITECTURES[platform.machine()], sockets)


def test_a_failure_is_shown_up_to_its_bound() -> None:
    assert wrapped_command.MAX_SHOWN_CHARS == 300
    assert failure_of(("/bin/sh", "-c", "printf '%0400d' 0 >&2; exit 1")) == "0" * 300
    missing = failure_of((f"/nowhere/{'x' * 400}",))
    assert missing is not None
    assert (len(missing), missing[:9]) == (300, "[Errno 2]")
    assert failure_of(("/bin/sh", "-c", "exit 3")) == "exit status 3"
    assert failure_of(("/bin/sh", "-c", "echo x >&2")) is None


@pytest.mark.parametrize(
    ("policy", "socks", "own_hosts", "local"),
    [
        (NetworkPolicy(), "socks5h://127.0.0.1:43128", "localhost,127.0.0.1,::1", "0"),
        (
            NetworkPolicy(has_socks=False),
            "http://127.0.0.1:43128",
            "localhost,127.0.0.1,::1",
            "0",
        ),
        (NetworkPolicy(reaches_local=True), "socks5h://127.0.0.1:43128", "", "1"),
        (NetworkPolicy(allowed=("localhost",)), "socks5h://127.0.0.1:43128", "", "0"),
        (
            NetworkPolicy(allowed=("example.com",)),
            "socks5h://127.0.0.1:43128",
            "localhost,127.0.0.1,::1",
            "0",
        ),
    ],
)
def test_programs_find_the_proxy_in_their_variables(
    policy: NetworkPolicy, socks: str, own_hosts: str, local: str
) -> None:
    found = dict(proxy_variables(policy))
    some = ("HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "CODEX_NETWORK_ALLOW_LOCAL_BINDING")
    assert [found[name] for name in some] == ["http://127.0.0.1:43128", socks, own_hosts, local]
    assert (found["NODE_USE_ENV_PROXY"], found["CODEX_NETWORK_PROXY_ACTIVE"]) == ("1", "1")


# Mounts.


def kinds(path: str) -> mounting.Kind:
    return "folder" if path in ("/tmp", "/tmp/in", "/usr", "/work") else "missing"


@pytest.mark.parametrize(
    ("sandbox_policy", "paths"),
    [
        # What is missing is put there only where it is protected in what can be written.
        (EffectivePolicy(writable=(), readable=("/usr", "/no")), ["/usr"]),
        (EffectivePolicy(writable=(), readable=("/tmp/no",), scratch=("/tmp",)), ["/tmp"]),
        (EffectivePolicy(writable=("/work",), denied=("/work/no",)), ["/work"]),
        (
            EffectivePolicy(writable=("/work",), protected=("/work/no",)),
            ["/work", "/work/no"],
        ),
        # An empty folder shows nothing anyway.
        (EffectivePolicy(writable=(), denied=("/tmp/in",), scratch=("/tmp",)), ["/tmp"]),
    ],
)
def test_what_needs_no_mount_has_none(sandbox_policy: EffectivePolicy, paths: list[str]) -> None:
    assert [mount.path for mount in mounts(sandbox_policy, "/work", kinds)] == paths


def test_what_is_shown_in_that_way_anyway_is_not_looked_at() -> None:
    looked: list[str] = []

    def look(path: str) -> mounting.Kind:
        looked.append(path)
        return "folder"

    sandbox_policy = EffectivePolicy(writable=(), protected=("/home/u", "/"))
    assert (mounts(sandbox_policy, "/", look), looked) == ([], [])


def test_a_sandbox_has_as_many_places_as_it_may_and_no_more() -> None:
    places = tuple(f"/no/{number}" for number in range(MAX_MOUNTS + 1))
    assert mounts(EffectivePolicy(writable=places[1:]), "/", kinds) == []
    with pytest.raises(TooManyMounts):
        mounts(EffectivePolicy(writable=places), "/", kinds)


# Placeholders.


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """Make a folder to be confined to."""
    work = tmp_path.resolve() / "work"
    work.mkdir()
    return work


def test_what_is_put_into_a_folder_is_written_down_while_it_is_there(
    work: Path, tmp_path: Path
) -> None:
    records = tmp_path / "home" / "records"
    sandbox = Bubblewrap("/bwrap", PlaceholderRecords(records))
    sandbox.pid_max = None
    names = [str(work / name) for name in (".agents", ".codex", ".git")]
    sandbox_policy = resolved(EffectivePolicy(writable=(str(work),), protected=tuple(names)))
    before = open_fds()
    wrapped = sandbox.wrap(("true",), str(work), sandbox_policy, tty=False)
    (record,) = records.iterdir()
    paths, identities = map(json.loads, record.read_text().splitlines())
    found = [os.stat(path) for path in paths]
    assert sorted(paths) == names
    assert identities == [[one.st_dev, one.st_ino] for one in found]
    modes = (records.stat().st_mode & 0o777, record.stat().st_mode & 0o777)
    assert modes == (0o700, 0o600)
    wrapped.close()
    assert (list(records.iterdir()), list(work.iterdir()), open_fds()) == ([], [], before)


def test_a_claim_is_given_up_with_its_descriptor(work: Path) -> None:
    before = open_fds()
    folder = os.open(work, os.O_RDONLY)
    held = Placeholder(folder, ".git")
    assert (work / ".git").is_dir()
    held.release()
    held.release()
    os.close(folder)
    assert (list(work.iterdir()), open_fds()) == ([], before)


def test_a_folder_that_others_remove_all_the_time_is_given_up(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    folder = os.open(work, os.O_RDONLY)
    with monkeypatch.context() as patched:
        patched.setattr(os, "mkdir", lambda name, mode, dir_fd: made.append(name))
        with pytest.raises(OSError, match=r"^\.git cannot be held$"):
            Placeholder(folder, ".git")
    os.close(folder)
    assert made == [".git"] * 100


def test_a_folder_that_somebody_removes_before_it_is_claimed_is_made_again(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = open_fds()
    folder = os.open(work, os.O_RDONLY)
    lock = fcntl.flock
    rounds: list[int] = []

    def removed_first(fd: int, kind: int) -> None:
        rounds.append(fd)
        if len(rounds) == 1:
            (work / ".git").rmdir()
        lock(fd, kind)

    monkeypatch.setattr(fcntl, "flock", removed_first)
    held = Placeholder(folder, ".git")
    assert (len(rounds), (work / ".git").is_dir()) == (2, True)
    monkeypatch.undo()
    held.release()
    os.close(folder)
    assert open_fds() == before


@pytest.mark.parametrize("blank", ["", "\n", "\n\n"])
@pytest.mark.parametrize(("more_bytes", "is_read"), [(0, True), (-1, False)])
def test_a_record_is_read_up_to_its_bound(
    work: Path,
    tmp_path: Path,
    more_bytes: int,
    is_read: bool,
    blank: str,
) -> None:
    assert (placeholders.MAX_RECORD_BYTES, placeholders.MAX_RECORDS) == (1 << 20, 64)
    (work / ".git").mkdir()
    (work / ".git").chmod(PLACEHOLDER_MODE)
    line = json.dumps([str(work / ".git")])
    records = tmp_path / "records"
    records.mkdir()
    # Its server has died before it could say what it made.
    (records / "0123.0").write_text(line + blank)
    bound = len(line) + more_bytes + (len(blank) if is_read else 0)
    before = open_fds()
    PlaceholderRecords(records, bound).remove_left()
    assert ((work / ".git").exists(), list(records.iterdir())) == (not is_read, [])
    assert open_fds() == before


def test_what_is_another_one_than_a_moment_ago_is_not_mounted(work: Path) -> None:
    sandbox = Bubblewrap("/bwrap")
    sandbox.pid_max = None
    sandbox_policy = resolved(EffectivePolicy(writable=(str(work),)))
    before = open_fds()
    other = replace(sandbox_policy, identities={str(work): (0, 1)})
    with pytest.raises(SandboxUnavailable, match=f"`{work}` is another one than a moment ago"):
        sandbox.wrap(("true",), str(work), other, tty=False)
    found = work.stat()
    same = replace(sandbox_policy, identities={str(work): (found.st_dev, found.st_ino)})
    sandbox.wrap(("true",), str(work), same, tty=False).close()
    assert open_fds() == before
