"""The filter of system calls that every confined process has, besides what it does not see.

Refused calls fail with EPERM. Calls of another architecture end the process: the filter knows the
numbers of one. `clone3` and what is newer than this page fail with ENOSYS, so that libraries fall
back: what they ask for is in memory, where a filter cannot look.
Source: docs/tools.md, "Sandbox"; https://man7.org/linux/man-pages/man2/seccomp.2.html.
"""

import errno
from collections.abc import Iterator
from functools import cache
from typing import Literal, TypeAlias

from app_server.host.sandbox.linux.bpf import And, JumpIf, Line, Load, Name, Return, assemble
from app_server.host.sandbox.linux.system_calls import NEWEST, REFUSED, X32_BIT, Architecture

ALLOW = 0x7FFF0000
KILL = 0x80000000
_FAIL = 0x00050000
EPERM = _FAIL | errno.EPERM
ENOSYS = _FAIL | errno.ENOSYS

_NUMBER = Load(0)
_ARCHITECTURE = Load(4)

NEW_NAMESPACES = 0x7E020000
"""`CLONE_NEW…` of mounts, cgroups, hosts, IPC, users, processes and networks."""

TERMINAL_INPUT = (0x5412, 0x541C)
"""`TIOCSTI` and `TIOCLINUX`: both can type into a terminal."""

AF_UNIX = 1
IP_FAMILIES = (2, 10)
"""`AF_INET` and `AF_INET6`."""
TYPE_BITS = 0xF
"""Of the type of a socket; above are flags."""
CONNECTED_TYPES = (1, 5)
"""`SOCK_STREAM` and `SOCK_SEQPACKET`; others could send to any address without connecting."""


Sockets: TypeAlias = Literal["all", "own", "none"]
"""Which there are. A socket of the Unix domain in the file system may belong to a service that is
not confined, whatever network a process is in: so with `none` there are those of the Unix domain
alone, and none connects to another; with `own` there are those of IP, which stay in a network of
their own, and of the Unix domain only pairs."""


@cache
def seccomp_filter(architecture: Architecture, sockets: Sockets) -> bytes:
    """Return the filter, in the form that bubblewrap loads."""
    return assemble(list(_lines(architecture, sockets)))


def _lines(architecture: Architecture, sockets: Sockets) -> Iterator[Line]:
    numbers = architecture.numbers
    yield _ARCHITECTURE
    yield JumpIf("equal", architecture.audit, "ours")
    yield Return(KILL)
    yield Name("ours")
    yield _NUMBER
    if architecture.has_x32:
        yield JumpIf("at_least", X32_BIT, "unknown")
    yield JumpIf("above", NEWEST, "unknown")
    yield JumpIf("equal", numbers["clone3"], "unknown")
    yield JumpIf("equal", numbers["clone"], "clone")
    yield JumpIf("equal", numbers["ioctl"], "ioctl")
    if sockets != "all":
        yield JumpIf("equal", numbers["socket"], "unix" if sockets == "none" else "ip")
        yield JumpIf("equal", numbers["socketpair"], "unix")
    if sockets == "none":
        yield JumpIf("equal", numbers["connect"], "refused")
    for name in REFUSED:
        yield JumpIf("equal", numbers[name], "refused")
    yield Return(ALLOW)
    yield Name("clone")
    yield _argument(0)
    yield JumpIf("any_bit", NEW_NAMESPACES, "refused")
    yield Return(ALLOW)
    yield Name("ioctl")
    yield _argument(1)
    for request in TERMINAL_INPUT:
        yield JumpIf("equal", request, "refused")
    yield Return(ALLOW)
    if sockets == "own":
        yield Name("ip")
        yield _argument(0)
        for family in IP_FAMILIES:
            yield JumpIf("equal", family, "allowed")
        yield Return(EPERM)
    if sockets != "all":
        yield Name("unix")
        yield _argument(0)
        yield JumpIf("equal", AF_UNIX, "type")
        yield Return(EPERM)
        yield Name("type")
        yield _argument(1)
        yield And(TYPE_BITS)
        for kind in CONNECTED_TYPES:
            yield JumpIf("equal", kind, "allowed")
        yield Return(EPERM)
        yield Name("allowed")
        yield Return(ALLOW)
    yield Name("refused")
    yield Return(EPERM)
    yield Name("unknown")
    yield Return(ENOSYS)


def _argument(index: int) -> Load:
    """Load the lower half of an argument: the kernel ignores the upper one of these."""
    return Load(16 + 8 * index)
