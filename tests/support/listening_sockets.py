"""All sockets on which a process or one below it listens, as Linux shows them.

Source: proc(5), /proc/pid/fd, /proc/pid/net; Documentation/networking/proc_net_tcp.rst.
"""

import os
import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROC = Path("/proc")
LISTENING = "0A"
ACCEPTS = "00010000"
"""The flag of a Unix socket that listens."""


@dataclass(frozen=True)
class Listening:
    """A socket that listens."""

    family: int
    address: Any
    """As `connect` takes it, reached from `process`."""
    process: int
    """One in the network that the socket is in."""
    is_here: bool
    """Whether that network is our own."""


def processes_below(first: int) -> list[int]:
    """Return a process and its descendants."""
    parents = {}
    for folder in PROC.glob("[0-9]*"):
        with suppress(OSError):
            parents[int(folder.name)] = int(
                (folder / "stat").read_text().rpartition(")")[2].split()[1]
            )
    found = [first]
    for process in found:
        found.extend(child for child, parent in parents.items() if parent == process)
    return found


def listening_sockets(first: int) -> list[Listening]:
    """Return what a process and its descendants listen on, in whichever network it is."""
    tree = processes_below(first)
    held = {inode for process in tree for inode in _sockets(process)}
    networks: dict[str, int] = {}
    for process in tree:
        with suppress(OSError):
            networks.setdefault(os.readlink(PROC / str(process) / "ns" / "net"), process)
    here = os.readlink("/proc/self/ns/net")
    return [
        Listening(family, address, process, network == here)
        for network, process in networks.items()
        for inode, family, address in _table(process)
        if inode in held
    ]


def _sockets(process: int) -> list[str]:
    found = []
    with suppress(OSError):
        for descriptor in (PROC / str(process) / "fd").iterdir():
            with suppress(OSError):
                if match := re.fullmatch(r"socket:\[(\d+)\]", str(descriptor.readlink())):
                    found.append(match[1])
    return found


def _table(process: int) -> list[tuple[str, int, Any]]:
    net = PROC / str(process) / "net"
    found: list[tuple[str, int, Any]] = []
    for name, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for row in (net / name).read_text().splitlines()[1:]:
            columns = row.split()
            if columns[3] == LISTENING:
                host, _, port = columns[1].partition(":")
                words = (bytes.fromhex(host[at : at + 8])[::-1] for at in range(0, len(host), 8))
                address = socket.inet_ntop(family, b"".join(words))
                found.append((columns[9], family, (address, int(port, 16))))
    for row in (net / "unix").read_text().splitlines()[1:]:
        columns = row.split()
        if columns[3] == ACCEPTS:
            path = columns[7] if len(columns) > 7 else ""
            found.append((columns[6], socket.AF_UNIX, path.replace("@", "\0", 1)))
    return found
