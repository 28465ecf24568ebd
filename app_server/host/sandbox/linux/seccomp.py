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

from app_server.host.sandbox.linux.bpf import (
    Instruction,
    Line,
    assemble,
    end,
    jump_if,
    keep_bits,
    load,
)
from app_server.host.sandbox.linux.system_calls import NEWEST, REFUSED, Architecture

ALLOW = 0x7FFF0000
KILL = 0x80000000
_FAIL = 0x00050000
EPERM = _FAIL | errno.EPERM
ENOSYS = _FAIL | errno.ENOSYS

_NUMBER = load(0)
_ARCHITECTURE = load(4)

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
    return assemble(_lines(architecture, sockets))


def _lines(architecture: Architecture, sockets: Sockets) -> Iterator[Line]:
    numbers = architecture.numbers
    yield _ARCHITECTURE
    yield jump_if("equal", architecture.audit, "ours")
    yield end(KILL)
    yield "ours"
    yield _NUMBER
    # Those of x32 are larger than any other.
    yield jump_if("above", NEWEST, "unknown")
    yield jump_if("equal", numbers["clone3"], "unknown")
    yield jump_if("equal", numbers["clone"], "clone")
    yield jump_if("equal", numbers["ioctl"], "ioctl")
    if sockets != "all":
        yield jump_if("equal", numbers["socket"], "unix" if sockets == "none" else "ip")
        yield jump_if("equal", numbers["socketpair"], "unix")
    if sockets == "none":
        yield jump_if("equal", numbers["connect"], "refused")
    for name in REFUSED:
        yield jump_if("equal", numbers[name], "refused")
    yield end(ALLOW)
    yield "clone"
    yield _argument(0)
    yield jump_if("any_bit", NEW_NAMESPACES, "refused")
    yield end(ALLOW)
    yield "ioctl"
    yield _argument(1)
    for request in TERMINAL_INPUT:
        yield jump_if("equal", request, "refused")
    yield end(ALLOW)
    if sockets == "own":
        yield "ip"
        yield _argument(0)
        for family in IP_FAMILIES:
            yield jump_if("equal", family, "allowed")
        yield end(EPERM)
    if sockets != "all":
        yield "unix"
        yield _argument(0)
        yield jump_if("equal", AF_UNIX, "type")
        yield end(EPERM)
        yield "type"
        yield _argument(1)
        yield keep_bits(TYPE_BITS)
        for kind in CONNECTED_TYPES:
            yield jump_if("equal", kind, "allowed")
        yield end(EPERM)
        yield "allowed"
        yield end(ALLOW)
    yield "refused"
    yield end(EPERM)
    yield "unknown"
    yield end(ENOSYS)


def _argument(index: int) -> Instruction:
    """Load the lower half of an argument: the kernel ignores the upper one of these."""
    return load(16 + 8 * index)
