"""Refuse connections whose other end belongs to another user of this machine; Linux alone.

Everything of ours that listens asks here, before it reads what a connection wants of it, or at the
latest before it does that. The kernel is asked over netlink (some µs, however many sockets there
are). Where it does not answer, the system's tables of connections are read: a table has a row for
each end of a connection on this machine, and that of the other end names the user who made the
socket. Rows count only while the connection is established: a socket that was closed, or that waits
to vanish, is shown as root's.
Source: docs/listeners.md, "Other users"; Linux, sock_diag(7), include/uapi/linux/inet_diag.h,
Documentation/networking/proc_net_tcp.rst.
"""

import ipaddress
import logging
import os
import socket
import struct
import sys
import time
from asyncio.trsock import TransportSocket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import anyio.lowlevel
import anyio.to_thread

from app_server.runtime.counted_warnings import warn_counted
from app_server.runtime.http.loopback_address import is_loopback_address

logger = logging.getLogger(__name__)

CAN_LOOK = sys.platform == "linux"

LOOKS_AT_A_TIME = 2
"""Worker threads that read tables; connections above it wait."""

OVERFLOW_UID = 65534
"""Shown for every user whom the user namespace of this process does not know."""

UID_MAP = Path("/proc/self/uid_map")
EVERY_USER = "0 0 4294967295"
"""The map of a user namespace that knows all users."""

HOW_TO_LET_IN = (
    "It talks to its own user alone, unless its config.toml has refuse_other_users = false."
)

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST = 1
TCP_ESTABLISHED = 1
ANY_COOKIE = b"\xff" * 8

_HEADER = struct.Struct("=IHHII")
"""Length, type, flags, sequence, port."""
_REQUEST = struct.Struct("=BBBBI")
"""Family, protocol, extensions, padding, states."""
_ENDS = struct.Struct("!HH16s16s")
"""Ports and addresses, the socket's own first; interface and cookie follow."""
_ANSWER = struct.Struct("=BBBB48sIIIII")
"""Family, state, timer, retransmissions, both ends, expiry, two queues, user, inode."""

LOOK_S = 5.0
"""For one look. 72,000 sockets take 0.05 s, at times 0.4 s."""

MAX_TABLE_BYTES = 64 * 1024 * 1024
"""Read in one look, which is 430,000 sockets."""

PASSES = 2
"""A table that changes while it is read may hide a row."""

ESTABLISHED_STATE = b"01"
"""In a table."""

SocketAddress: TypeAlias = Sequence[Any]
"""Address from `getsockname`: host and port, and for IPv6 two more."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Connection tables of the system."""

    folder: Path = Path("/proc/net")
    chunk_bytes: int = 65_536
    """Read at once."""
    max_bytes: int = MAX_TABLE_BYTES


SYSTEM_TABLES = Tables()


class UserUnknown(Exception):
    """Raise where the user at the other end cannot be found out; the text says why."""


class OtherUser(Exception):
    """Raise where the other end belongs to another user, `uid`."""

    def __init__(self, uid: int) -> None:
        super().__init__(f"the other end belongs to user {uid}")
        self.uid = uid


class OthersLetIn:
    """Hold whether others are accepted; a context variable would not reach all tasks."""

    def __init__(self) -> None:
        self._is_set = False

    def get(self) -> bool:
        """Return the value."""
        return self._is_set

    def set(self, value: bool) -> bool:
        """Set the value; returns the one before, for `reset`."""
        before, self._is_set = self._is_set, value
        return before

    def reset(self, before: bool) -> None:
        """Set the value back."""
        self._is_set = before


others_are_let_in = OthersLetIn()
"""Set once by a server, for all that it serves; see `refuse_other_users` in docs/config.md."""

_limiter: anyio.lowlevel.RunVar[anyio.CapacityLimiter] = anyio.lowlevel.RunVar("looks at tables")

_NOTED = struct.Struct("=iII")
"""Process, user, group (unix(7), `SO_PEERCRED`)."""


async def refusal_of_stranger(
    connection: TransportSocket | socket.socket, how_to_let_in: str = HOW_TO_LET_IN
) -> str | None:
    """Return the line that refuses an accepted connection; None for one of our own user's.

    None too where others are let in, where the system does not tell, and for a connection of
    another machine: its users are that machine's, and it comes only where a token is wanted.
    """
    if not CAN_LOOK or others_are_let_in.get():
        return None
    try:
        if connection.family == socket.AF_UNIX:
            check_unix(connection)
        else:
            there, here = _ends(connection)
            if is_loopback_address(there[0]):
                await check_tcp(there, here)
    except OtherUser as exc:
        warn_counted(logger, "refused a connection of user %d", exc.uid)
        return f"This server belongs to another user of this machine. {how_to_let_in}\n"
    except UserUnknown as exc:
        # A check that lets pass what it cannot see is passed by hiding.
        if _has_hung_up(connection):
            logger.info("refused a connection whose other end was closed: %s", exc)
        else:
            warn_counted(logger, "refused a connection whose user is unknown: %s", exc)
        return f"This server cannot tell which user connects: {exc}. {how_to_let_in}\n"
    return None


def _has_hung_up(connection: TransportSocket | socket.socket) -> bool:
    """Whether the other end of a TCP connection is closed."""
    if connection.family == socket.AF_UNIX:
        return False
    try:
        info = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)
    except OSError:
        return True
    return info[0] != TCP_ESTABLISHED


async def check_tcp(
    there: SocketAddress, here: SocketAddress, tables: Tables = SYSTEM_TABLES
) -> None:
    """Check the owner of a TCP connection from `there` to `here`; reads tables on a worker thread.

    Root is another user as well: a process of root may stand for anybody (a relay), and one
    that wants to can become any user.

    Raises:
        OtherUser, UserUnknown
    """
    uid = asked_owner(there, here)
    if uid is None:
        limiter = _limiter.get(None)
        if limiter is None:
            _limiter.set(limiter := anyio.CapacityLimiter(LOOKS_AT_A_TIME))
        uid = await anyio.to_thread.run_sync(owner_in, tables, there, here, limiter=limiter)
    _require_own(uid)


def check_unix(connection: TransportSocket | socket.socket) -> None:
    """Check the owner of a connection that a Unix socket accepted.

    The kernel noted the user when the connection was made, whoever has the other end since.

    Raises:
        OtherUser, UserUnknown
    """
    try:
        noted = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _NOTED.size)
        _, uid, _ = _NOTED.unpack(noted)
    except (OSError, struct.error) as exc:
        raise UserUnknown("the kernel does not name its user") from exc
    _require_own(uid)


def _ends(connection: TransportSocket | socket.socket) -> tuple[SocketAddress, SocketAddress]:
    try:
        return connection.getpeername(), connection.getsockname()
    except OSError as exc:
        raise UserUnknown("the connection has gone") from exc


def _require_own(uid: int) -> None:
    if uid == OVERFLOW_UID and not _knows_every_user():
        raise UserUnknown("its user is not one of this user namespace")
    if uid != os.geteuid():
        raise OtherUser(uid)


def _knows_every_user() -> bool:
    """Whether each number is one user, OVERFLOW_UID too, as where there is no user namespace."""
    try:
        return UID_MAP.read_text().split() == EVERY_USER.split()
    except OSError:
        return False


def asked_owner(there: SocketAddress, here: SocketAddress) -> int | None:
    """Ask the kernel for the user id of the socket at `there`, connected to `here`.

    None: there is none, it was closed, or this kernel or sandbox does not answer. Never waits, but
    for the very first question since the machine started, which may load a module of the kernel.
    """
    addresses = plain_address(there[0]), plain_address(here[0])
    if addresses[0].version != addresses[1].version:
        return None
    packed = (address.packed.ljust(16, b"\0") for address in addresses)
    ends = _ENDS.pack(there[1], here[1], *packed)
    try:
        answer = _ask(addresses[0], ends)
    except OSError:
        return None
    if len(answer) < _HEADER.size + _ANSWER.size:
        return None
    if _HEADER.unpack_from(answer)[1] != SOCK_DIAG_BY_FAMILY:
        return None
    _, state, _, _, found, *_, uid, inode = _ANSWER.unpack_from(answer, _HEADER.size)
    # Where there is no such connection the kernel may answer with a listener on its port.
    if state != TCP_ESTABLISHED or not inode or not _is_between(found, ends):
        return None
    return int(uid)


def _ask(address: ipaddress.IPv4Address | ipaddress.IPv6Address, ends: bytes) -> bytes:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, 1 << TCP_ESTABLISHED)
    body = request + ends + bytes(4) + ANY_COOKIE
    header = _HEADER.pack(_HEADER.size + len(body), SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_SOCK_DIAG) as kernel:
        # The answer is there when the request has been sent.
        kernel.setblocking(False)
        kernel.sendto(header + body, (0, 0))
        answer, (sender, _) = kernel.recvfrom(4096)
    if sender != 0:
        raise OSError("the answer is not the kernel's")
    return answer


def _is_between(found: bytes, ends: bytes) -> bool:
    """Compare ports and addresses; a socket for both versions of IP has mapped addresses."""
    left, right = _ENDS.unpack_from(found), _ENDS.unpack_from(ends)
    return left[:2] == right[:2] and all(
        one == other or one == bytes(10) + b"\xff\xff" + other[:4]
        for one, other in zip(left[2:], right[2:], strict=True)
    )


def owner_in(tables: Tables, there: SocketAddress, here: SocketAddress) -> int:
    """Read from the tables the user id of the socket at `there`, connected to `here`.

    Raises:
        UserUnknown: the table cannot be read, does not have it, or is too long.
    """
    deadline_s = time.monotonic() + LOOK_S
    for _ in range(PASSES):
        for name, row in _rows(there, here):
            try:
                found = _find(tables, name, row, deadline_s)
            except FileNotFoundError:
                # Without IPv6 there is one table.
                continue
            except OSError as exc:
                raise UserUnknown(f"{tables.folder / name}: {exc.strerror}") from exc
            if found is not None:
                return found
    raise UserUnknown("the system's table of connections does not have it")


def _rows(there: SocketAddress, here: SocketAddress) -> Iterator[tuple[str, bytes]]:
    """Yield the tables that may have the row of the other end, with how it begins.

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
    """Parse an address; IPv4 mapped into IPv6 becomes IPv4."""
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


def _find(tables: Tables, name: str, row: bytes, deadline_s: float) -> int | None:
    wanted, size, rest = row + ESTABLISHED_STATE + b" ", 0, b""
    with (tables.folder / name).open("rb", buffering=0) as lines:
        while chunk := lines.read(tables.chunk_bytes):
            text = rest + chunk
            if (found := text.find(wanted)) >= 0 and (end := text.find(b"\n", found)) >= 0:
                return _user_in(text[found:end])
            # What follows the last line end is the beginning of a row.
            rest = text[text.rfind(b"\n") + 1 :]
            size += len(chunk)
            if size > tables.max_bytes or time.monotonic() > deadline_s:
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
