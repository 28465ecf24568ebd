"""Numbers of system calls that are refused, for each architecture.

Source: arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h of Linux.
"""

from collections.abc import Mapping
from dataclasses import dataclass

NEWEST = 470
"""`listns`, of Linux 6.18; what came later was not looked at, and is not there."""

X32_BIT = 0x40000000
"""Numbers from here on are of the x32 interface of x86_64."""

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


@dataclass(frozen=True, slots=True, eq=False)
class Architecture:
    """How one kind of processor calls the kernel."""

    audit: int
    """`AUDIT_ARCH_…`."""
    numbers: Mapping[str, int]
    has_x32: bool = False


X86_64 = Architecture(
    audit=0xC000003E,
    has_x32=True,
    numbers=_SINCE_5
    | {
        "ioctl": 16,
        "socket": 41,
        "connect": 42,
        "socketpair": 53,
        "clone": 56,
        "ptrace": 101,
        "syslog": 103,
        "vhangup": 153,
        "pivot_root": 155,
        "chroot": 161,
        "acct": 163,
        "settimeofday": 164,
        "mount": 165,
        "umount2": 166,
        "swapon": 167,
        "swapoff": 168,
        "reboot": 169,
        "sethostname": 170,
        "setdomainname": 171,
        "init_module": 175,
        "delete_module": 176,
        "quotactl": 179,
        "nfsservctl": 180,
        "lookup_dcookie": 212,
        "clock_settime": 227,
        "kexec_load": 246,
        "add_key": 248,
        "request_key": 249,
        "keyctl": 250,
        "unshare": 272,
        "perf_event_open": 298,
        "open_by_handle_at": 304,
        "setns": 308,
        "process_vm_readv": 310,
        "process_vm_writev": 311,
        "kcmp": 312,
        "finit_module": 313,
        "kexec_file_load": 320,
        "bpf": 321,
        "userfaultfd": 323,
    },
)

AARCH64 = Architecture(
    audit=0xC00000B7,
    numbers=_SINCE_5
    | {
        "lookup_dcookie": 18,
        "ioctl": 29,
        "umount2": 39,
        "mount": 40,
        "pivot_root": 41,
        "nfsservctl": 42,
        "chroot": 51,
        "vhangup": 58,
        "quotactl": 60,
        "acct": 89,
        "unshare": 97,
        "kexec_load": 104,
        "init_module": 105,
        "delete_module": 106,
        "clock_settime": 112,
        "syslog": 116,
        "ptrace": 117,
        "reboot": 142,
        "sethostname": 161,
        "setdomainname": 162,
        "settimeofday": 170,
        "socket": 198,
        "socketpair": 199,
        "connect": 203,
        "add_key": 217,
        "request_key": 218,
        "keyctl": 219,
        "clone": 220,
        "swapon": 224,
        "swapoff": 225,
        "perf_event_open": 241,
        "open_by_handle_at": 265,
        "setns": 268,
        "process_vm_readv": 270,
        "process_vm_writev": 271,
        "kcmp": 272,
        "finit_module": 273,
        "bpf": 280,
        "userfaultfd": 282,
        "kexec_file_load": 294,
    },
)

ARCHITECTURES = {"x86_64": X86_64, "aarch64": AARCH64}
"""By what `platform.machine()` says."""
