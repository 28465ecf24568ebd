"""Numbers of system calls that are refused, for each architecture.

Source: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux.
"""

from collections.abc import Mapping
from dataclasses import dataclass

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
