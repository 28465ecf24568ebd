"""Which process listens on a TCP port, as far as Linux shows it to this user.

Source: Linux, Documentation/networking/proc_net_tcp.rst; proc(5), /proc/pid/fd.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PROC = Path("/proc")
LISTENING = "0A"
MAX_ROWS = 100_000
"""Of a table that are looked at."""


def listener_of(port: int) -> int | None:
    """Return the process that listens on a port; None if unknown, as of other users. Blocks."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port)}
    if not sockets:
        return None
    for folder in PROC.glob("[0-9]*"):
        with suppress(OSError):
            for descriptor in (folder / "fd").iterdir():
                with suppress(OSError):
                    if str(descriptor.readlink()) in sockets:
                        return int(folder.name)
    return None


def _inodes(port: int) -> Iterator[str]:
    for table in ("tcp", "tcp6"):
        with suppress(OSError), (PROC / "net" / table).open() as file:
            for number, row in enumerate(file):
                if number > MAX_ROWS:
                    break
                columns = row.split()
                if columns[3] == LISTENING and columns[1].endswith(f":{port:04X}"):
                    yield columns[9]
