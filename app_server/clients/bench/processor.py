"""Which process listens on a TCP port of this machine, and what it has used of processors.

Linux only; elsewhere nothing is found, and a bench shows no processor time.
Source: proc(5), `/proc/net/tcp`; clock_getcpuclockid(3): `(~pid << 3) | CPUCLOCK_SCHED`.
"""

import contextlib
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

LISTENING = "0A"
"""State of a socket in `/proc/net/tcp`."""

CPUCLOCK_SCHED = 2


def listener_of(url: str) -> int | None:
    """Return the process that listens where a `ws://` URL leads; None where that cannot be seen.

    Sockets of other users' processes are hidden, so they are None too.
    """
    port = urlsplit(url).port
    if port is None or sys.platform != "linux":
        return None
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    return next((pid for pid in _processes() if sockets & set(_open_files(pid))), None)


def processor_seconds(pid: int) -> float | None:
    """Return what all threads of a process have used since it began, its children left out.

    None if there is no such process, or no such clock on this platform.
    """
    if sys.platform != "linux":
        return None
    try:
        return time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED)
    except OSError:
        return None


def _inodes(port: int) -> Iterator[str]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                yield fields[9]


def _processes() -> Iterator[int]:
    return (int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit())


def _open_files(pid: int) -> Iterator[str]:
    try:
        numbers = list(Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return
    for number in numbers:
        with contextlib.suppress(OSError):
            yield str(number.readlink())
