"""Addresses and ports of this process: a command that reaches them can drive the server.

Source: docs/tools.md, "Network through a proxy"; proc(5).
"""

import socket
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from app_server.permissions.network.target import Address, is_this_machine

DESCRIPTORS = Path("/proc/self/fd")


def leads_here(addresses: Sequence[Address], port: int) -> bool:
    """Whether any of the addresses is this machine's, and the port one that this process serves.

    Blocks for some ms.

    Raises:
        OSError: the system does not say which descriptors there are.
    """
    return any(map(is_own, addresses)) and port in own_ports()


def is_own(address: Address) -> bool:
    """Whether connecting to an address reaches this machine: then a socket can be bound to it."""
    if is_this_machine(address):
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True


def own_ports() -> set[int]:
    """Return the TCP ports of all listeners of this process. Blocks for some ms.

    Raises:
        OSError: the system does not say which descriptors there are.
    """
    ports: set[int] = set()
    for entry in DESCRIPTORS.iterdir():
        # It may be no socket, or be closed and its number used again, at any moment.
        with suppress(OSError):
            ports |= _listens_on(int(entry.name))
    return ports


def _listens_on(fd: int) -> set[int]:
    """Return the port of a listener; nothing is closed here.

    To close as much as a copy of a descriptor would take the locks of this process from its file
    (fcntl(2)), such as those of SQLite.

    Raises:
        OSError: it is no socket.
    """
    found = socket.socket(fileno=fd)
    try:
        if found.family not in (socket.AF_INET, socket.AF_INET6):
            return set()
        if not found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return set()
        return {found.getsockname()[1]}
    finally:
        found.detach()
