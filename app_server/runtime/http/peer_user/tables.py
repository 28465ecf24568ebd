"""The owner of a socket, read from the system's tables of connections.

A table has a row for each end of a connection on this machine; that of the other end names the user
who made the socket. Rows are looked for by both addresses and ports, and count only while the
connection is established: a socket that was closed, or that waits to vanish, is shown as root's.
This is for where the kernel cannot be asked (diag.py): it takes longer the more sockets there are.
Source: Linux, Documentation/networking/proc_net_tcp.rst.
"""

import ipaddress
import struct
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from app_server.runtime.http.peer_user.errors import UserUnknown

LOOK_S = 5.0
"""For one look. 72,000 sockets take 0.05 s, at times 0.4 s."""

MAX_TABLE_BYTES = 64 * 1024 * 1024
"""Read in one look, which is 430,000 sockets."""

PASSES = 2
"""A table that changes while it is read may hide a row."""

CHUNK_BYTES = 65536
ESTABLISHED = b"01"

SocketAddress: TypeAlias = Sequence[Any]
"""What `getsockname` gives: host and port, and for IPv6 two more."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Where the system shows its connections."""

    folder: Path = Path("/proc/net")


SYSTEM_TABLES = Tables()


def owner_in(tables: Tables, there: SocketAddress, here: SocketAddress) -> int:
    """Return who owns the socket at `there` of an established connection to `here`.

    Raises:
        UserUnknown: the table cannot be read, does not have it, or is too long.
    """
    deadline_s = time.monotonic() + LOOK_S
    for _ in range(PASSES):
        for name, row in _rows(there, here):
            try:
                found = _find(tables.folder / name, row, deadline_s)
            except FileNotFoundError:
                # Without IPv6 there is one table.
                continue
            except OSError as exc:
                raise UserUnknown(f"{tables.folder / name}: {exc.strerror}") from exc
            if found is not None:
                return found
    raise UserUnknown("the system's table of connections does not have it")


def _rows(there: SocketAddress, here: SocketAddress) -> Iterator[tuple[str, bytes]]:
    """Say how the row of the other end begins, and in which tables it may be.

    A socket for both versions shows its addresses of IPv4 in the table of IPv6.
    """
    ends = [(plain_address(address[0]), address[1]) for address in (there, here)]
    if all(host.version == 4 for host, _ in ends):
        yield "tcp", _row([(host.packed, port) for host, port in ends])
        mapped = bytes(10) + b"\xff\xff"
        yield "tcp6", _row([(mapped + host.packed, port) for host, port in ends])
    else:
        yield "tcp6", _row([(host.packed, port) for host, port in ends])


def plain_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """Read an address; one of IPv4 that is mapped into IPv6 comes back as what it is."""
    address = ipaddress.ip_address(host)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def _row(ends: Sequence[tuple[bytes, int]]) -> bytes:
    """Render two addresses as the table has them: words in the order of this machine."""
    shown = (
        "".join(f"{word:08X}" for (word,) in struct.iter_unpack("=I", packed)) + f":{port:04X}"
        for packed, port in ends
    )
    return f": {' '.join(shown)} ".encode()


def _find(table: Path, row: bytes, deadline_s: float) -> int | None:
    wanted, size, rest = row + ESTABLISHED + b" ", 0, b""
    with table.open("rb", buffering=0) as lines:
        while chunk := lines.read(CHUNK_BYTES):
            text = rest + chunk
            if (found := text.find(wanted)) >= 0 and (end := text.find(b"\n", found)) >= 0:
                return _user_in(text[found:end])
            # What follows the last line end is the beginning of a row.
            rest = text[text.rfind(b"\n") + 1 :]
            size += len(chunk)
            if size > MAX_TABLE_BYTES or time.monotonic() > deadline_s:
                raise UserUnknown("the system's table of connections is too long")
    return None


def _user_in(row: bytes) -> int:
    # ":", both addresses, state, queues, timer, retransmissions, user, timeout, inode
    fields = row.split()
    try:
        uid, inode = int(fields[7]), int(fields[9])
    except (IndexError, ValueError) as exc:
        raise UserUnknown("the system's table of connections has a form of its own") from exc
    if not inode:
        raise UserUnknown("its socket has no owner any more")
    return uid
