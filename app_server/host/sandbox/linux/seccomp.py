"""Seccomp filter of every process in a sandbox.

Refused calls fail with EPERM. Calls of another architecture end the process: the filter knows the
numbers of one. `clone3` and what is newer than this page fail with ENOSYS, so that libraries fall
back: what they ask for is in memory, where a filter cannot look. It is classic BPF, assembled here
with names for where jumps go.
Source: docs/tools.md, "Sandbox"; https://man7.org/linux/man-pages/man2/seccomp.2.html;
https://www.kernel.org/doc/html/latest/userspace-api/seccomp_filter.html;
arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux.
"""

import errno
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Literal, TypeAlias

MAX_INSTRUCTIONS = 4096
"""Of a filter, as Linux has it."""

MAX_JUMP = 255
"""Instructions that a conditional jump can pass over."""

_TESTS = {"equal": 0x15, "above": 0x25, "any_bit": 0x45}

Test: TypeAlias = Literal["equal", "above", "any_bit"]


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction; `code` and `value` as `struct sock_filter` has them."""

    code: int
    value: int
    to: str | None = None
    """Of a jump the name where it goes on if its test holds; else with what follows."""


Line: TypeAlias = Instruction | str
"""A text names the instruction that follows."""


def load(offset: int) -> Instruction:
    """Load 32 bits of the seccomp data into the accumulator, from a byte offset."""
    return Instruction(0x20, offset)


def keep_bits(mask: int) -> Instruction:
    """Keep only some bits of the accumulator."""
    return Instruction(0x54, mask)


def end(verdict: int) -> Instruction:
    """End with a verdict."""
    return Instruction(0x06, verdict)


def jump_if(test: Test, value: int, to: str) -> Instruction:
    """Go on at a name if a test of the accumulator holds."""
    return Instruction(_TESTS[test], value, to)


def assemble(lines: Iterable[Line]) -> bytes:
    """Return the filter as an array of `struct sock_filter`, in the byte order of this machine.

    Raises:
        ValueError: a jump is too long, goes back or nowhere, or the filter is too long.
    """
    places: dict[str, int] = {}
    code: list[Instruction] = []
    for line in lines:
        if isinstance(line, str):
            places[line] = len(code)
        else:
            code.append(line)
    if len(code) > MAX_INSTRUCTIONS:
        raise ValueError(f"{len(code)} instructions, and {MAX_INSTRUCTIONS} are allowed")
    return b"".join(_encode(one, here, places) for here, one in enumerate(code))


def _encode(one: Instruction, here: int, places: dict[str, int]) -> bytes:
    over = 0 if one.to is None else places.get(one.to, 0) - here - 1
    if not 0 <= over <= MAX_JUMP:
        raise ValueError(f"there is no jump to `{one.to}` from {here}")
    return struct.pack("=HBBI", one.code, over, 0, one.value)


NEWEST = 470
"""`listns`, of Linux 6.18; what came later was not looked at, and is not there."""

REFUSED = (
    # Other processes: their memory, registers and descriptors.
    *("kcmp", "pidfd_getfd", "process_vm_readv", "process_vm_writev", "ptrace"),
    # What is mounted where, and another root.
    *("chroot", "fsconfig", "fsmount", "fsopen", "fspick", "mount", "mount_setattr", "move_mount"),
    *("open_tree", "open_tree_attr", "pivot_root", "umount2"),
    # Namespaces; `clone` is looked at more closely.
    *("setns", "unshare"),
    # Keys of the session.
    *("add_key", "keyctl", "request_key"),
    # Large surfaces of the kernel that builds and tests do without.
    *("bpf", "io_uring_enter", "io_uring_register", "io_uring_setup", "perf_event_open"),
    "userfaultfd",
    # Files without a path, which no mount keeps away.
    "open_by_handle_at",
    # The machine itself.
    *("acct", "clock_settime", "delete_module", "finit_module", "init_module", "kexec_file_load"),
    *("kexec_load", "lookup_dcookie", "nfsservctl", "quotactl", "quotactl_fd", "reboot"),
    *("setdomainname", "sethostname", "settimeofday", "swapoff", "swapon", "syslog", "vhangup"),
)
"""By name: they fail with EPERM."""

_SINCE_5 = {
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "clone3": 435,
    "pidfd_getfd": 438,
    "mount_setattr": 442,
    "quotactl_fd": 443,
    "open_tree_attr": 467,
}
"""Numbers that all architectures share."""

_BEFORE = {
    "ioctl": (16, 29),
    "socket": (41, 198),
    "connect": (42, 203),
    "socketpair": (53, 199),
    "clone": (56, 220),
    "ptrace": (101, 117),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "acct": (163, 89),
    "settimeofday": (164, 170),
    "mount": (165, 40),
    "umount2": (166, 39),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "sethostname": (170, 161),
    "setdomainname": (171, 162),
    "init_module": (175, 105),
    "delete_module": (176, 106),
    "quotactl": (179, 60),
    "nfsservctl": (180, 42),
    "lookup_dcookie": (212, 18),
    "clock_settime": (227, 112),
    "kexec_load": (246, 104),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "perf_event_open": (298, 241),
    "open_by_handle_at": (304, 265),
    "setns": (308, 268),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kcmp": (312, 272),
    "finit_module": (313, 273),
    "kexec_file_load": (320, 294),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
}
"""Numbers of x86_64 and of aarch64."""


@dataclass(frozen=True, slots=True, eq=False)
class Architecture:
    """The system call numbers of one processor architecture."""

    audit: int
    """`AUDIT_ARCH_…`."""
    numbers: Mapping[str, int]


X86_64 = Architecture(
    audit=0xC000003E,
    numbers=_SINCE_5 | {name: number for name, (number, _) in _BEFORE.items()},
)

AARCH64 = Architecture(
    audit=0xC00000B7,
    numbers=_SINCE_5 | {name: number for name, (_, number) in _BEFORE.items()},
)

ARCHITECTURES = {"x86_64": X86_64, "aarch64": AARCH64}
"""By what `platform.machine()` says."""


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
