"""The owner of one socket, asked of the kernel over netlink: some µs, however many there are.

Source: Linux, sock_diag(7); include/uapi/linux/inet_diag.h.
"""

import ipaddress
import socket
import struct

from app_server.runtime.http.peer_user.tables import SocketAddress, plain_address

NETLINK_SOCK_DIAG = 4
SOCK_DIAG_BY_FAMILY = 20
NLM_F_REQUEST = 1
ESTABLISHED = 1
ANY_COOKIE = b"\xff" * 8

_HEADER = struct.Struct("=IHHII")
"""Length, type, flags, sequence, port."""
_REQUEST = struct.Struct("=BBBBI")
"""Family, protocol, extensions, padding, states."""
_ENDS = struct.Struct("!HH16s16s")
"""Ports and addresses, the socket's own first; interface and cookie follow."""
_ANSWER = struct.Struct("=BBBB48sIIIII")
"""Family, state, timer, retransmissions, both ends, expiry, two queues, user, inode."""


def asked_owner(there: SocketAddress, here: SocketAddress) -> int | None:
    """Return who owns the socket at `there` of an established connection to `here`.

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
    if state != ESTABLISHED or not inode or not _is_between(found, ends):
        return None
    return int(uid)


def _ask(address: ipaddress.IPv4Address | ipaddress.IPv6Address, ends: bytes) -> bytes:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    request = _REQUEST.pack(family, socket.IPPROTO_TCP, 0, 0, 1 << ESTABLISHED)
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
