"""How many processes a confined command may have: by a cgroup, or else by a limit of resources.

`RLIMIT_NPROC` does not hold for the root of a machine, also not in a user namespace, and before
Linux 5.14 it counted all processes of a user. So a cgroup is preferred; root without one has none.
Everything here blocks.
Source: docs/tools.md, "Sandbox"; https://docs.kernel.org/admin-guide/cgroup-v2.html.
"""

import itertools
import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeAlias

from app_server.host.sandbox.programs import failure_of

MAX_PROCESSES = 2048
"""Of one command; threads count as well."""

REMOVE_TRIES = 20
REMOVE_S = 0.01
"""Between tries: what was killed is counted until the system has taken leave of it."""

Prefix: TypeAlias = tuple[Sequence[str], Callable[[], None]]
"""What comes before a command line, and what is to be done when the command has ended."""


class ProcessLimit(Protocol):
    """A way to limit the processes of a command."""

    name: str
    """For people."""

    def prefix(self) -> Prefix:
        """Make what one command needs.

        Raises:
            OSError: it cannot be made.
        """


class CgroupLimit:
    """A cgroup for each command, in one where the server may make some."""

    _numbers = itertools.count()

    def __init__(self, parent: Path) -> None:
        self.name = f"cgroup {parent}"
        self._parent = parent
        self._left: set[Path] = set()

    def prefix(self) -> Prefix:
        """Make a cgroup that the command moves into by itself, before it is anything else."""
        group = self._parent / f"app-server.{os.getpid()}.{next(self._numbers)}"
        group.mkdir()
        try:
            (group / "pids.max").write_text(str(MAX_PROCESSES))
        except OSError:
            group.rmdir()
            raise
        enter = 'echo 0 >"$0" && exec "$@"'
        return ("/bin/sh", "-c", enter, str(group / "cgroup.procs")), lambda: self._remove(group)

    def remove_old(self) -> None:
        """Remove what servers left behind that were killed."""
        for group in self._parent.glob("app-server.*.*"):
            server = group.name.split(".")[1]
            if not Path("/proc", server).exists():
                with suppress(OSError):
                    group.rmdir()

    def _remove(self, group: Path) -> None:
        self._left.add(group)
        for _ in range(REMOVE_TRIES):
            self._left = {left for left in self._left if not _is_removed(left)}
            if group not in self._left:
                return
            time.sleep(REMOVE_S)


class ResourceLimit:
    """`RLIMIT_NPROC`, which counts each user namespace for itself since Linux 5.14."""

    def __init__(self, program: str) -> None:
        self.name = "RLIMIT_NPROC"
        self._program = program

    def prefix(self) -> Prefix:
        """Give the program that sets the limit."""
        return (self._program, f"--nproc={MAX_PROCESSES}:{MAX_PROCESSES}", "--"), lambda: None


def find_limit() -> ProcessLimit | None:
    """Return the first way that works here; None if none does."""
    for parent in _parents():
        limit = CgroupLimit(parent)
        with suppress(OSError):
            limit.remove_old()
            before, end = limit.prefix()
            failure = failure_of((*before, "/bin/sh", "-c", ":"))
            end()
            if failure is None:
                return limit
    program = shutil.which("prlimit")
    if program is not None and os.getuid() != 0 and _kernel() >= (5, 14):
        return ResourceLimit(program)
    return None


def _is_removed(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _kernel() -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", platform.release())
    return (0, 0) if found is None else (int(found[1]), int(found[2]))


def _parents() -> Iterator[Path]:
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
