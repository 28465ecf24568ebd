"""Spawner process: starts commands for a server, and ends the processes that they leave.

It forks a supervisor for each command, one ahead. The supervisor is a subreaper (prctl(2)):
whatever the command starts stays below it, also what calls setsid(2) or forks twice. When the
command has ended, when the server asks, or when the server is gone however it died, the supervisor
ends all of it.

stdin is a stream socket from the server. A command is one byte with file descriptors beside it: a
file with the order as JSON (`Order`), a control socket, and what the order's `fds` names. On the
control socket the supervisor writes a line for each thing that happens: `started PID`, or `failed
ERRNO WHAT`; `exited STATUS`, negative for a signal. It closes it when nothing of the command is
left. A byte from the server asks for the end; so does the end of the socket.

Runs as `python -I -S`, and imports little.
Source: docs/tools.md, "Commands".
"""

import contextlib
import ctypes
import fcntl
import gc
import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TypedDict

TERMINATE_S = 2.0
"""Between SIGTERM and SIGKILL."""

TRAILING_S = 0.2
"""For what goes on after the command has ended by itself, such as a `tee` that still writes."""

LOOK_S = 0.02
"""Between looks at processes that were asked to end."""

OUT_OF_MEMORY = "500"
"""The least `oom_score_adj` of commands, so that Linux ends them before the server: proc(5)."""

MAX_FDS = 253
"""Descriptors of one order: the most that Linux passes in one message (`SCM_MAX_FD`)."""

LIBC = ctypes.CDLL(None)
PR_SET_CHILD_SUBREAPER = 36

TERMINATE = (signal.SIGTERM, signal.SIGCONT)
HANG_UP = (signal.SIGHUP, *TERMINATE)
"""A shell at a terminal ignores SIGTERM."""


class Order(TypedDict):
    """One command; paths and texts may hold bytes that are no UTF-8, as surrogates."""

    argv: list[str]
    env: dict[str, str]
    cwd: str
    fds: list[int]
    """The numbers that the descriptors after the control socket have in the command."""
    terminal: str | None
    """The device that becomes its controlling terminal, stdin, stdout and stderr."""
    wrapped: bool
    """The process is a sandbox that dies at once of SIGTERM and takes the command with it."""
    placeholders: dict[str, str]
    """Of `fds`, as text, those of empty folders that are removed when the process has ended, and
    what each is called (app_server/host/sandbox/linux/placeholders.py)."""


def main() -> None:
    """Take orders until the server is gone; an argument is the entrance of the cgroup for all."""
    for entrance in sys.argv[1:]:
        # If it is still there; all that is started from here is in it then.
        with contextlib.suppress(OSError), open(entrance, "w") as file:  # noqa: PTH123
            file.write("0")
    # A command that takes all memory is ended, and not the server.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "r+") as file:  # noqa: PTH123
        if int(file.read()) < int(OUT_OF_MEMORY):
            file.write(OUT_OF_MEMORY)
    # Whoever stops everything at once must not stop this before the server.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    # Supervisors are not waited for.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    gc.collect()
    gc.freeze()
    server = socket.socket(fileno=0)
    while stand_by(server):
        pass


def stand_by(server: socket.socket) -> bool:
    """Have a supervisor wait for the next order, as forking takes time; False: no more come."""
    word_end, parent_end = os.pipe()
    if fork_when_possible() == 0:
        os.close(word_end)
        fds = receive(server)
        os.write(parent_end, b"o" if fds else b"x")
        os.close(parent_end)
        server.close()
        if fds:
            supervise(fds)
        os._exit(0)
    os.close(parent_end)
    # Nothing is read of one that was killed while it waited: another takes its place.
    word = os.read(word_end, 1)
    os.close(word_end)
    return word != b"x"


def fork_when_possible() -> int:
    """Fork; retry while the limit of processes is reached."""
    while True:
        try:
            return os.fork()
        except BlockingIOError:
            time.sleep(LOOK_S)


def receive(server: socket.socket) -> list[int]:
    """Wait for an order; no descriptors mean that the server is gone."""
    try:
        data, fds, _, _ = socket.recv_fds(server, 1, MAX_FDS)
    except OSError:
        return []
    for fd in fds:
        os.set_inheritable(fd, False)
    return fds if data else []


def supervise(fds: list[int]) -> None:
    """Supervise one command until all its processes have ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    order_fd, control_fd, *ours = fds
    control = socket.socket(fileno=control_fd)
    with os.fdopen(order_fd, "rb") as file:
        order: Order = json.loads(file.read())
    if sys.platform == "linux":
        # Orphans below this process become its children; Linux alone can do that.
        LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        pid = start(order, ours)
    except OSError as exc:
        what = exc.filename or order["argv"][0]
        report(control, f"failed {exc.errno or 0} {what}")
        return
    placeholders = []
    for fd, number in zip(ours, order["fds"], strict=True):
        name = order["placeholders"].get(str(number))
        if name is None:
            os.close(fd)
        else:
            placeholders.append((fd, name))
    report(control, f"started {pid}")
    command = Command(pid, control, placeholders)
    command.wait()
    # A sandbox that dies at once would not leave the command the time to end by itself.
    spare = frozenset({pid}) if order["wrapped"] else frozenset()
    command.end(HANG_UP if order["terminal"] else TERMINATE, spare)


def start(order: Order, received: list[int]) -> int:
    """Start the command in a session of its own.

    Raises:
        OSError: the folder or the program cannot be used; `filename` says which.
    """
    try:
        os.chdir(order["cwd"])
    except OSError as exc:
        raise OSError(exc.errno, exc.strerror, order["cwd"]) from None
    wanted = order["fds"]
    # Numbers may be wanted that others have now: first all are moved out of the way.
    above = max((*received, *wanted, 2)) + 1
    moved = [fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, above) for fd in received]
    actions: list[tuple[int, ...] | tuple[int, int, str, int, int]] = [
        (os.POSIX_SPAWN_DUP2, fd, number) for fd, number in zip(moved, wanted, strict=True)
    ]
    if (terminal := order["terminal"]) is not None:
        # Opened by the leader of a session it becomes its controlling terminal.
        actions.append((os.POSIX_SPAWN_OPEN, 0, terminal, os.O_RDWR, 0))
        actions += [(os.POSIX_SPAWN_DUP2, 0, number) for number in (1, 2)]
    if "PATH" in order["env"]:
        os.environ["PATH"] = order["env"]["PATH"]
    try:
        return os.posix_spawnp(
            order["argv"][0],
            order["argv"],
            order["env"],
            file_actions=actions,
            setsid=True,
            setsigmask=(),
            setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
        )
    except OSError as exc:
        raise OSError(exc.errno, exc.strerror, order["argv"][0]) from None
    finally:
        for fd in moved:
            os.close(fd)


def remove_placeholder(fd: int, name: str) -> None:
    """Remove the empty folder of a descriptor if it has this name and no other process's lock.

    The lock of the descriptor is given up.
    """
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Where it is now: what it lies in may have been moved.
        folder = os.open("..", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=fd)
        try:
            if os.path.samestat(os.fstat(fd), os.lstat(name, dir_fd=folder)):
                os.rmdir(name, dir_fd=folder)
        finally:
            os.close(folder)
    except OSError:
        # Others hold it, or something is in it now.
        pass
    fcntl.flock(fd, fcntl.LOCK_UN)


def report(control: socket.socket, line: str) -> None:
    """Write a line to the server, if there still is one."""
    with contextlib.suppress(OSError):
        control.sendall(line.encode(errors="surrogateescape") + b"\n")


class Command:
    """A command that was started, seen from its supervisor."""

    def __init__(
        self, pid: int, control: socket.socket, placeholders: Sequence[tuple[int, str]]
    ) -> None:
        self._pid = pid
        self._control = control
        self._placeholders = placeholders
        self._is_empty = False
        """Nothing of the command is left, not even its orphans."""
        self._has_ended = False

    def wait(self) -> None:
        """Wait until the command has ended, or its end is requested."""
        woken, wake = os.pipe()
        os.set_blocking(wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        poll = select.poll()
        poll.register(woken, select.POLLIN)
        poll.register(self._control, select.POLLIN)
        while True:
            self._reap()
            if self._has_ended or self._control.fileno() in dict(poll.poll()):
                return
            os.read(woken, 512)

    def end(self, signals: Sequence[int], spare: frozenset[int]) -> None:
        """Send SIGTERM to all processes but `spare`, and SIGKILL a little later."""
        deadline = time.monotonic() + TRAILING_S
        while self._has_ended and not self._is_empty and time.monotonic() < deadline:
            time.sleep(LOOK_S)
            self._reap()
        asked = set(spare)
        deadline = time.monotonic() + TERMINATE_S
        while not self._is_empty:
            if time.monotonic() >= deadline:
                self._kill()
            # Again each time: a shell begins the next of its commands before its own signal comes.
            for pid in self._members() - asked:
                asked.add(pid)
                for number in signals:
                    send(pid, number)
            time.sleep(LOOK_S)
            self._reap()

    def _kill(self) -> None:
        stopped: set[int] = set()
        # Stopped first: what forks without end could outrun this.
        while found := self._members() - stopped:
            for pid in found:
                send(pid, signal.SIGSTOP)
            stopped |= found
        for pid in stopped:
            send(pid, signal.SIGKILL)

    def _reap(self) -> None:
        """Take the ends of children, and report the command's own."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == self._pid:
                    self._has_ended = True
                    # Before the end is known: whoever looks at the folder then finds it clean.
                    for fd, name in self._placeholders:
                        remove_placeholder(fd, name)
                    report(self._control, f"exited {os.waitstatus_to_exitcode(status)}")
                if pid == 0:
                    return
        except ChildProcessError:
            self._is_empty = True

    def _members(self) -> set[int]:
        """All that is below this process; where that cannot be known, the command's group."""
        parents = dict(parents_of_processes())
        if not parents:
            return {-self._pid}
        found = {os.getpid()}
        while more := {pid for pid, parent in parents.items() if parent in found} - found:
            found |= more
        return found - {os.getpid()}


def parents_of_processes() -> Iterator[tuple[int, int]]:
    """Map each process to its parent; empty where the system does not show that."""
    try:
        names = [entry.name for entry in os.scandir("/proc")]
    except OSError:
        return
    for name in names:
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb", buffering=0) as file:  # noqa: PTH123
                    stat = file.read(4096)
            except OSError:
                # It is not there any more.
                continue
            # The name of the program is in parentheses, and may hold any of its own.
            state, parent = stat[stat.rindex(b")") + 1 :].split(None, 2)[:2]
            if state != b"Z":
                yield int(name), int(parent)


def send(pid: int, number: int) -> None:
    """Send a signal to a process, or to a group whose number is negative, if it is there."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


if __name__ == "__main__":
    main()
