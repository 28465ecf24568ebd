"""The numbers of the filter, as the headers of Linux have them: other tests take them from it.

Source: include/uapi/asm/unistd_64.h of x86_64, include/uapi/asm-generic/unistd.h for aarch64,
include/uapi/linux/seccomp.h and audit.h.
"""

from app_server.host.sandbox.linux import seccomp
from app_server.host.sandbox.linux.seccomp import (
    AARCH64,
    ARCHITECTURES,
    NEWEST,
    REFUSED,
    X86_64,
)

NUMBERS = """\
io_uring_setup 425 425
io_uring_enter 426 426
io_uring_register 427 427
open_tree 428 428
move_mount 429 429
fsopen 430 430
fsconfig 431 431
fsmount 432 432
fspick 433 433
clone3 435 435
pidfd_getfd 438 438
mount_setattr 442 442
quotactl_fd 443 443
open_tree_attr 467 467
ioctl 16 29
socket 41 198
connect 42 203
socketpair 53 199
clone 56 220
ptrace 101 117
syslog 103 116
vhangup 153 58
pivot_root 155 41
chroot 161 51
acct 163 89
settimeofday 164 170
mount 165 40
umount2 166 39
swapon 167 224
swapoff 168 225
reboot 169 142
sethostname 170 161
setdomainname 171 162
init_module 175 105
delete_module 176 106
quotactl 179 60
nfsservctl 180 42
lookup_dcookie 212 18
clock_settime 227 112
kexec_load 246 104
add_key 248 217
request_key 249 218
keyctl 250 219
unshare 272 97
perf_event_open 298 241
open_by_handle_at 304 265
setns 308 268
process_vm_readv 310 270
process_vm_writev 311 271
kcmp 312 272
finit_module 313 273
kexec_file_load 320 294
bpf 321 280
userfaultfd 323 282
"""
"""Name, x86_64, aarch64."""


def test_every_call_that_is_looked_at_has_its_number() -> None:
    rows = [line.split() for line in NUMBERS.splitlines()]
    assert X86_64.numbers == {name: int(number) for name, number, _ in rows}
    assert AARCH64.numbers == {name: int(number) for name, _, number in rows}
    looked_at = {"clone", "clone3", "connect", "ioctl", "socket", "socketpair"}
    assert set(REFUSED) | looked_at == set(X86_64.numbers)
    assert len(set(REFUSED)) == len(REFUSED)


def test_architectures_verdicts_and_requests_are_those_of_linux() -> None:
    assert NEWEST == 470
    assert [each.audit for each in (X86_64, AARCH64)] == [0xC000003E, 0xC00000B7]
    assert ARCHITECTURES == {"x86_64": X86_64, "aarch64": AARCH64}
    verdicts = (seccomp.ALLOW, seccomp.KILL, seccomp.EPERM, seccomp.ENOSYS)
    assert verdicts == (0x7FFF0000, 0x80000000, 0x00050001, 0x00050026)
    assert seccomp.TERMINAL_INPUT == (0x5412, 0x541C)
    # Mounts, cgroups, hosts, IPC, users, processes, networks.
    flags = (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000)
    assert sum(flags) == seccomp.NEW_NAMESPACES
