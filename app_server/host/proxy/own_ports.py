"""The ports that this process listens on: whoever reaches them can drive the server.

Source: docs/tools.md, "Network through a proxy"; proc(5).
"""

import os
import socket
from contextlib import suppress
from pathlib import Path

DESCRIPTORS = Path("/proc/self/fd")


def own_ports() -> set[int]:
    """Return the TCP ports of all listeners of this process. Blocks for some ms.

    Raises:
        OSError: the system does not say which descriptors there are.
    """
    ports: set[int] = set()
    for entry in DESCRIPTORS.iterdir():
        # A descriptor may be closed, and its number used again, at any moment.
        with suppress(OSError):
            ports |= _listens_on(os.dup(int(entry.name)))
    return ports


def _listens_on(fd: int) -> set[int]:
    try:
        found = socket.socket(fileno=fd)
    except OSError:
        os.close(fd)
        return set()
    with found:
        if found.family not in (socket.AF_INET, socket.AF_INET6):
            return set()
        if not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return set()
        return {found.getsockname()[1]}
