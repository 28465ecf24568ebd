"""Limits on the processes of confined commands.

`RLIMIT_NPROC` bounds each sandbox by itself: since Linux 5.14 every user namespace is counted for
itself. It does not hold for the root of a machine, in any namespace. For root all commands of a
server are in one cgroup: one for each command would cost 10 ms, in which no process of the machine
can fork, as Linux stops them all to move one. Where there can be no cgroup, the numbers of the
sandbox's PID namespace are bounded, which has a `pid_max` of its own since Linux 6.14; that costs
the start of a Python for each command.
Source: docs/tools.md, "Sandbox"; setrlimit(2); https://docs.kernel.org/admin-guide/cgroup-v2.html;
https://docs.kernel.org/admin-guide/sysctl/kernel.html.
"""

import itertools
import os
import platform
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from app_server.host.sandbox.wrapped_command import failure_of

MAX_PROCESSES = 2048
"""Of one command, where a limit of resources holds; threads count as well."""

MAX_PROCESSES_OF_SERVER = 8192
"""Of all commands of a server together, where they are in a cgroup."""

RESERVED_PIDS = 300
"""Numbers that Linux leaves out when it begins anew."""

PIDS_PER_CPU = 8
"""Below which Linux takes no `pid_max`."""

REMOVE_TRIES = 20
REMOVE_S = 0.01
"""Between tries: what was killed is counted until the system has taken leave of it."""


_numbers = itertools.count()


def limiting_program() -> Sequence[str]:
    """Return the argv prefix that limits processes; empty where no limit is possible."""
    program = shutil.which("prlimit")
    if program is None or os.getuid() == 0 or _kernel() < (5, 14):
        return ()
    return (program, f"--nproc={MAX_PROCESSES}:{MAX_PROCESSES}", "--")


def limit_in_words() -> str | None:
    """Say how processes are limited on this machine; None: they are not. Blocks."""
    if limiting_program():
        return "RLIMIT_NPROC"
    entrance = _entrance_of_a_group()
    if entrance is not None:
        return f"the cgroup {Path(entrance).parent.parent}"
    return "pid_max of their PID namespace" if bound_of_pids() is not None else None


def bound_of_pids() -> int | None:
    """Return the `pid_max` of a sandbox without another bound of processes. Blocks.

    None where it is not needed, or where Linux has one for the whole machine alone.
    """
    if limiting_program() or _kernel() < (6, 14) or _entrance_of_a_group() is not None:
        return None
    return max(MAX_PROCESSES + RESERVED_PIDS, PIDS_PER_CPU * (os.cpu_count() or 1) + RESERVED_PIDS)


def _entrance_of_a_group() -> str | None:
    group = ServerGroup()
    entrance = group.entrance()
    group.remove()
    return entrance


class ServerGroup:
    """The cgroup of all commands of one server, where a limit of resources does not hold.

    Everything here blocks: call it in a worker thread.
    """

    def __init__(self) -> None:
        self._path: Path | None = None
        self._is_made = False

    def entrance(self) -> str | None:
        """Create the cgroup and return its `cgroup.procs`, or None."""
        if not self._is_made:
            self._is_made = True
            if not limiting_program():
                self._path = next(filter(None, map(_made_in, possible_parents())), None)
        return None if self._path is None else str(self._path / "cgroup.procs")

    def remove(self) -> None:
        """Remove it, once the commands have ended."""
        path, self._path = self._path, None
        self._is_made = False
        for _ in range(REMOVE_TRIES if path is not None else 0):
            assert path is not None
            if _is_removed(path):
                return
            time.sleep(REMOVE_S)


def _made_in(parent: Path) -> Path | None:
    """Create a cgroup in `parent`; None if it cannot be created, or no process can enter it."""
    _remove_old(parent)
    path = parent / f"app-server.{os.getpid()}.{next(_numbers)}"
    try:
        path.mkdir()
        (path / "pids.max").write_text(str(MAX_PROCESSES_OF_SERVER))
    except OSError:
        _is_removed(path)
        return None
    enter = ("/bin/sh", "-c", 'echo 0 >"$0"', str(path / "cgroup.procs"))
    if failure_of(enter) is not None:
        _is_removed(path)
        return None
    return path


def _remove_old(parent: Path) -> None:
    """Remove the cgroups of killed servers."""
    for group in parent.glob("app-server.*"):
        if not Path("/proc", group.name.split(".")[1]).exists():
            _is_removed(group)


def _is_removed(group: Path) -> bool:
    try:
        group.rmdir()
    except OSError as exc:
        return isinstance(exc, FileNotFoundError)
    return True


def _kernel() -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    return (0, 0) if found is None else (int(found[1]), int(found[2]))


def possible_parents() -> Iterator[Path]:
    """Give the cgroups in which one with a limit of processes can be."""
    mounted = _mounted()
    for line in _lines("/proc/self/cgroup"):
        _, controllers, path = line.split(":", 2)
        if "pids" in controllers.split(",") and "pids" in mounted:
            yield Path(mounted["pids"], path.lstrip("/"))
        elif not controllers and "" in mounted:
            ours = Path(mounted[""], path.lstrip("/"))
            # One that has processes has no children with limits, so it is mostly the one above.
            for parent in (ours, ours.parent):
                if "pids" in " ".join(_lines(parent / "cgroup.subtree_control")).split():
                    yield parent


def _mounted() -> dict[str, str]:
    """Return where hierarchies of cgroups are, by controller; that of version 2 has none."""
    found: dict[str, str] = {}
    for line in _lines("/proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        place = before.split(" ")[4]
        if kind == "cgroup2":
            found.setdefault("", place)
        elif kind == "cgroup":
            for option in options.split(","):
                found.setdefault(option, place)
    return found


def _lines(path: str | Path) -> Sequence[str]:
    with suppress(OSError):
        return Path(path).read_text().splitlines()
    return ()
