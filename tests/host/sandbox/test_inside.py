"""The program that starts bubblewrap, with another one in its place, and its functions alone.

It runs as `python -I -S`, so planted errors (`python -m tests.planted`) are met here alone.
"""

import contextlib
import errno
import io
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from app_server.host.sandbox.linux import inside
from app_server.host.sandbox.linux.sandbox import NOT_WANTED, PROGRAM
from tests.support.harness import WAIT_S
from tests.support.host.sandboxes import working_sandbox

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")

STAND_IN = """#!/bin/sh
echo '{}}' >/proc/self/fd/$2
cat /proc/self/fd/$4
echo started
"""
"""Says nothing that makes sense, and waits for the word to start, or for the end of its giver."""


def test_what_cannot_be_prepared_is_not_started_though_nobody_reads_why(tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text(STAND_IN)
    program.chmod(0o700)
    argv = (sys.executable, "-I", "-S", str(PROGRAM))
    heard, said = os.pipe()
    os.close(heard)
    try:
        done = subprocess.run(
            [*argv, NOT_WANTED, NOT_WANTED, "4000", "--", str(program)],
            stdout=subprocess.PIPE,
            stderr=said,
            timeout=WAIT_S,
            check=False,
        )
    finally:
        os.close(said)
    assert (done.returncode, done.stdout) == (-9, b"")


EARLY = """
import fcntl, socket, struct, sys
from app_server.host.sandbox.linux import inside
if inside.LIBC.unshare(inside.CLONE_NEWUSER | inside.CLONE_NEWNET) != 0: sys.exit("no namespaces")
address = struct.pack("16sHH4s8x", b"lo", socket.AF_INET, 0, socket.inet_aton("10.0.0.1"))
SIOCSIFADDR = 0x8916
fcntl.ioctl(socket.socket(), SIOCSIFADDR, address)
inside.send_listener(int(sys.argv[1]), 4000)
"""
"""With another address, the network knows which addresses are its own: 127.0.0.1 is none yet."""


def test_the_listener_is_made_also_before_its_network_has_the_address() -> None:
    working_sandbox()
    ours, theirs = socket.socketpair()
    with ours, theirs:
        argv = (sys.executable, "-c", EARLY, str(theirs.fileno()))
        subprocess.run(argv, pass_fds=[theirs.fileno()], timeout=WAIT_S, check=True)
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
    with socket.socket(fileno=fds[0]) as listener:
        assert listener.getsockname() == ("127.0.0.1", 4000)


# Its functions, in this process.


class Gone(BaseException):
    """A process that has ended, or has become another program."""


class Calls:
    """System calls in the order in which they were made."""

    def __init__(self) -> None:
        self.made: list[tuple[Any, ...]] = []

    def note(self, name: str, returns: Any = None) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.made.append((name, *arguments))
            if isinstance(returns, BaseException):
                raise returns
            return returns

        return call


@pytest.mark.parametrize(
    ("pieces", "pid"),
    [
        ([], None),
        ([b'{"child-pid":7}'], 7),
        ([b'{\n    "child-pid": 1234\n}\n'], 1234),
        ([b'{\n    "child-pid": 12', b'34,\n    "net-namespace": 5\n}'], 1234),
        ([b'{ "net-namespace": 5, "child-pid": 9 }'], 9),
    ],
)
def test_bubblewrap_names_the_process_in_the_sandbox(
    monkeypatch: pytest.MonkeyPatch, pieces: list[bytes], pid: int | None
) -> None:
    left = list(pieces)
    monkeypatch.setattr(os, "read", lambda fd, count: left.pop(0) if left else b"")
    found = inside.pid_in(3)
    monkeypatch.undo()
    assert (found, left) == (pid, [])


@pytest.mark.parametrize("said", [b"{}", b"x", b'{"child-pid":', b'{"child-pid": "x"}'])
def test_nonsense_names_no_process(said: bytes) -> None:
    reads, writes = os.pipe()
    with os.fdopen(writes, "wb") as pipe:
        pipe.write(said)
    with os.fdopen(reads), pytest.raises(ValueError, match="invalid literal"):
        inside.pid_in(reads)


def test_what_names_no_process_is_read_to_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def read(fd: int, count: int) -> bytes:
        counts.append(count)
        return b" " * (4096 - 1 if len(counts) == 1 else 1)

    monkeypatch.setattr(os, "read", read)
    with pytest.raises(ValueError, match="invalid literal"):
        inside.pid_in(3)
    monkeypatch.undo()
    assert counts == [4096, 4096]


def test_the_command_gets_the_variables_that_the_program_was_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = io.BytesIO(b"A=1\0B=2=3\0EMPTY=\0odd\0LC_CTYPE=C\0")
    asked = Calls()
    monkeypatch.setattr(inside, "open", asked.note("open", given), raising=False)
    wanted = {b"A": b"1", b"B": b"2=3", b"EMPTY": b"", b"LC_CTYPE": b"C"}
    assert inside.first_environment() == wanted
    assert asked.made == [("open", "/proc/self/environ", "rb")]


LISTENER = [("enter", "net", inside.CLONE_NEWNET), ("send_listener", 5, 8080)]
BOUND = [("enter", "pid", inside.CLONE_NEWPID), ("bound_processes", "400")]


def prepared(
    monkeypatch: pytest.MonkeyPatch,
    pid: int | None = 77,
    *,
    server: str = "5",
    pids: str = "400",
    failing: str = "",
    error: BaseException | None = None,
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]], bytes]:
    """Prepare a sandbox; return what was done in it, the signals that were sent, and the word."""
    done, sent = Calls(), Calls()
    for name in ("enter", "send_listener", "bound_processes"):
        made = error if name == failing else None
        monkeypatch.setattr(inside, name, done.note(name, made))
    process = error if failing == "pid_in" else pid
    monkeypatch.setattr(inside, "pid_in", Calls().note("pid_in", process))
    namespaces = {"/proc/77/ns/net": "net", "/proc/77/ns/pid": "pid"}
    reads, writes = os.pipe()
    with monkeypatch.context() as patched:
        patched.setattr(os, "open", lambda path, flags: namespaces[path])
        patched.setattr(os, "kill", sent.note("kill"))
        users = {("pid", 0xB701): "user"}
        patched.setattr("fcntl.ioctl", lambda fd, request: users[fd, request])
        try:
            inside.prepare(1000, 3, writes, server, "8080", pids)
        finally:
            os.close(writes)
            with os.fdopen(reads, "rb") as pipe:
                word = pipe.read()
    return done.made, sent.made, word


@pytest.mark.parametrize(
    ("server", "pids", "done"),
    [
        ("5", "400", [*LISTENER, *BOUND]),
        ("-", "400", BOUND),
        ("5", "-", LISTENER),
    ],
)
def test_what_is_wanted_is_made_before_the_command_may_start(
    monkeypatch: pytest.MonkeyPatch, server: str, pids: str, done: list[tuple[Any, ...]]
) -> None:
    own = ("enter", "user", inside.CLONE_NEWUSER)
    assert prepared(monkeypatch, server=server, pids=pids) == ([own, *done], [], b"x")


def test_nothing_is_made_or_killed_where_the_sandbox_has_ended_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert prepared(monkeypatch, None) == ([], [], b"")


@pytest.mark.parametrize("failing", ["enter", "send_listener", "bound_processes", "pid_in"])
@pytest.mark.parametrize("error", [OSError(0, "no"), ValueError("no")])
def test_the_sandbox_is_killed_where_something_cannot_be_made(
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    failing: str,
    error: Exception,
) -> None:
    _, sent, word = prepared(monkeypatch, failing=failing, error=error)
    assert (sent, word) == ([("kill", 1000, signal.SIGKILL)], b"")
    said = f"the sandbox of the command cannot be made: {error}\n"
    assert capfd.readouterr().err == said


def test_the_sandbox_is_killed_also_where_nobody_expected_the_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    killed = Calls()
    monkeypatch.setattr(inside, "pid_in", Calls().note("pid_in", Gone()))
    with monkeypatch.context() as patched:
        patched.setattr(os, "kill", killed.note("kill"))
        with pytest.raises(Gone):
            inside.prepare(1000, 3, 4, "5", "8080", "400")
    assert killed.made == [("kill", 1000, signal.SIGKILL)]


def test_a_namespace_is_entered_or_the_error_of_linux_is_raised(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "file").open("w") as file, pytest.raises(OSError) as refused:  # noqa: PT011
        inside.enter(file.fileno(), inside.CLONE_NEWNET)
    assert (refused.value.errno, refused.value.strerror) == (
        errno.EINVAL,
        os.strerror(errno.EINVAL),
    )
    calls = Calls()
    monkeypatch.setattr(inside, "LIBC", SimpleNamespace(setns=calls.note("setns", 0)))
    inside.enter(3, 4)
    assert calls.made == [("setns", 3, 4)]


def test_the_numbers_of_namespaces_are_those_of_linux() -> None:
    numbers = (inside.CLONE_NEWUSER, inside.CLONE_NEWPID, inside.CLONE_NEWNET)
    assert numbers == (0x10000000, 0x20000000, 0x40000000)


def test_the_server_gets_a_listener_that_takes_connections() -> None:
    ours, theirs = socket.socketpair()
    with ours:
        inside.send_listener(theirs.detach(), 0)
        word, fds, _, _ = socket.recv_fds(ours, 10, 2)
        assert (word, len(fds)) == (b"l", 1)
        # The other end is closed.
        assert ours.recv(1) == b""
    with socket.socket(fileno=fds[0]) as listener:
        host, port = listener.getsockname()
        assert (host, port > 0, listener.type) == ("127.0.0.1", True, socket.SOCK_STREAM)
        assert listener.getsockopt(socket.IPPROTO_IP, inside.IP_FREEBIND) == 1
        # `tcpi_sacked` of a listener is how many may wait.
        info = listener.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 32)
        assert struct.unpack_from("I", info, 28) == (inside.BACKLOG,)
        socket.create_connection((host, port), WAIT_S).close()


PER_PROCESS = "/proc/self/oom_score_adj"
"""Stands for a bound that each namespace has for itself: each process has this one."""


def test_bounding_a_namespace_leaves_the_pid_max_outside_as_it_was() -> None:
    before = Path(PER_PROCESS).read_text()
    inside.bound_processes("900", PER_PROCESS)
    assert Path(PER_PROCESS).read_text() == before
    # More than Linux takes.
    with pytest.raises(OSError, match="its processes cannot be bounded"):
        inside.bound_processes("2000", PER_PROCESS)
    assert Path(PER_PROCESS).read_text() == before


def test_a_pid_max_of_the_whole_machine_is_restored(tmp_path: Path) -> None:
    file = tmp_path / "pid_max"
    file.write_text("32768\n")
    with pytest.raises(OSError, match="its processes cannot be bounded"):
        inside.bound_processes("400", str(file))
    assert file.read_text() == "32768"


@pytest.mark.parametrize(("taken", "code"), [("400", 0), ("401", 1)])
def test_the_child_that_bounds_processes_ends_with_whether_it_did(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, taken: str, code: int
) -> None:
    file, ended = tmp_path / "pid_max", Calls()
    file.write_text("32768")
    if taken != "400":
        monkeypatch.setattr(inside, "write_pid_max", lambda *_: file.write_text(taken))
    with monkeypatch.context() as patched:
        patched.setattr(os, "fork", lambda: 0)
        patched.setattr(os, "_exit", ended.note("exit", Gone()))
        with pytest.raises(Gone):
            inside.bound_processes("400", str(file))
    assert (file.read_text(), ended.made) == (taken, [("exit", code)])


LINE = ["/bwrap", "--dev", "/dev", "--", "true"]


def started(
    monkeypatch: pytest.MonkeyPatch, server: str, *, forks: list[int], program: Any
) -> tuple[Calls, BaseException]:
    """Run the program until it has become another one, or has ended."""
    calls = Calls()
    monkeypatch.setattr(sys, "argv", ["inside.py", server, "8080", "400", "--", *LINE])
    monkeypatch.setattr(inside, "LIBC", SimpleNamespace(signal=calls.note("signal")))
    monkeypatch.setattr(inside, "first_environment", lambda: {b"A": b"1"})
    monkeypatch.setattr(inside, "prepare", calls.note("prepare"))
    left = list(forks)
    before = {int(name) for name in os.listdir("/dev/fd")}
    with monkeypatch.context() as patched:
        patched.setattr(os, "fork", lambda: left.pop(0))
        patched.setattr(os, "wait", calls.note("wait"))
        patched.setattr(os, "_exit", calls.note("exit", Gone()))
        patched.setattr(os, "execve", program)
        with pytest.raises((Gone, SystemExit)) as ended:
            inside.main()
    for name in os.listdir("/dev/fd"):
        if int(name) not in before:
            with contextlib.suppress(OSError):
                os.close(int(name))
    assert left == []
    return calls, ended.value


@pytest.mark.parametrize("has_server", [True, False])
def test_the_program_becomes_bubblewrap_with_its_two_pipes(
    monkeypatch: pytest.MonkeyPatch, has_server: bool
) -> None:
    became: list[Any] = []
    ours, theirs = socket.socketpair()
    server = theirs.detach() if has_server else -1

    def execve(program: str, line: list[str], environment: Any) -> None:
        info, block = int(line[2]), int(line[4])
        inherited = [os.get_inheritable(fd) for fd in (info, block)]
        # The other ends are closed here, or the end of who has them would not be seen.
        ends = (is_broken(info), os.read(block, 1))
        became.append((program, line, inherited, ends, environment))
        raise Gone

    calls, _ = started(monkeypatch, str(server) if has_server else "-", forks=[50], program=execve)
    ((program, line, inherited, ends, environment),) = became
    assert (program, line[0], line[1], line[3], line[5:]) == (
        "/bwrap",
        "/bwrap",
        "--info-fd",
        "--block-fd",
        LINE[1:],
    )
    assert (inherited, ends, environment) == ([True, True], (True, b""), {b"A": b"1"})
    assert calls.made == [
        ("wait",),
        ("signal", signal.SIGPIPE, 0),
        ("signal", signal.SIGXFSZ, 0),
    ]
    with ours:
        if has_server:
            # Its end is closed here.
            assert ours.recv(1) == b""
        else:
            theirs.close()


def is_broken(fd: int) -> bool:
    try:
        os.write(fd, b"x")
    except BrokenPipeError:
        return True
    return False


def test_a_program_that_cannot_be_started_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = Calls().note("execve", OSError(2, "No such file", "/bwrap"))
    _, ended = started(monkeypatch, "-", forks=[50], program=refused)
    assert isinstance(ended, SystemExit)
    assert ended.code == "[Errno 2] No such file: '/bwrap'"


def test_a_child_of_a_child_prepares_the_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    unused = Calls().note("execve")
    calls, _ = started(monkeypatch, "5", forks=[0, 0], program=unused)
    (name, sandbox, _, _, *wanted), ended = calls.made
    assert (name, sandbox, wanted, ended) == (
        "prepare",
        os.getpid(),
        ["5", "8080", "400"],
        ("exit", 0),
    )
    calls, _ = started(monkeypatch, "5", forks=[0, 50], program=unused)
    assert calls.made == [("exit", 0)]
