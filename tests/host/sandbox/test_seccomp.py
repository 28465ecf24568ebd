"""The filter of system calls, run by a machine of BPF here: each architecture, each argument."""

import re
import struct

import pytest

from app_server.host.sandbox.linux.seccomp import (
    AARCH64,
    ALLOW,
    ENOSYS,
    EPERM,
    KILL,
    MAX_INSTRUCTIONS,
    MAX_JUMP,
    NEWEST,
    REFUSED,
    X86_64,
    Architecture,
    Line,
    Sockets,
    assemble,
    end,
    jump_if,
    keep_bits,
    load,
    seccomp_filter,
)

BOTH = pytest.mark.parametrize("machine", [X86_64, AARCH64], ids=["x86_64", "aarch64"])
SOCKETS = pytest.mark.parametrize("sockets", ["all", "own", "none"])


def verdict(program: bytes, number: int, *arguments: int, audit: int) -> int:
    """Run a filter on one call, as linux/filter.h describes it."""
    padded = (*arguments, 0, 0, 0, 0, 0, 0)[:6]
    data = struct.pack("=iIQ6Q", number, audit, 0, *padded)
    code = list(struct.iter_unpack("=HBBI", program))
    at = accumulator = 0
    while True:
        operation, over, otherwise, value = code[at]
        at += 1
        match operation:
            case 0x20:
                [accumulator] = struct.unpack_from("=I", data, value)
            case 0x54:
                accumulator &= value
            case 0x06:
                return int(value)
            case 0x15:
                at += over if accumulator == value else otherwise
            case 0x25:
                at += over if accumulator > value else otherwise
            case 0x45:
                at += over if accumulator & value else otherwise
            case _:
                raise AssertionError(f"no such operation: {operation}")


def judged(machine: Architecture, sockets: Sockets, name: str | int, *arguments: int) -> int:
    number = machine.numbers[name] if isinstance(name, str) else name
    program = seccomp_filter(machine, sockets)
    return verdict(program, number, *arguments, audit=machine.audit)


@BOTH
@SOCKETS
def test_what_is_always_refused(machine: Architecture, sockets: Sockets) -> None:
    assert {name: judged(machine, sockets, name) for name in REFUSED} == dict.fromkeys(
        REFUSED, EPERM
    )
    assert judged(machine, sockets, "clone3") == ENOSYS
    assert judged(machine, sockets, NEWEST + 1) == ENOSYS
    assert judged(machine, sockets, 0x7FFFFFFF) == ENOSYS
    assert judged(machine, sockets, -1) == ENOSYS


@BOTH
@SOCKETS
def test_what_builds_and_tests_need_is_allowed(machine: Architecture, sockets: Sockets) -> None:
    looked_at = {*machine.numbers.values()}
    others = [number for number in range(NEWEST + 1) if number not in looked_at]
    assert {judged(machine, sockets, number) for number in others} == {ALLOW}
    # A thread, and a child as `vfork` makes it.
    assert judged(machine, sockets, "clone", 0x3D0F00) == ALLOW
    assert judged(machine, sockets, "clone", 0x4111) == ALLOW
    assert judged(machine, sockets, "ioctl", 0, 0x5401) == ALLOW
    for kind in (1, 5, 1 | 0x80000, 5 | 0x800):
        assert judged(machine, sockets, "socket", 1, kind) == (EPERM if sockets == "own" else ALLOW)
        assert judged(machine, sockets, "socketpair", 1, kind) == ALLOW


@BOTH
@SOCKETS
@pytest.mark.parametrize("flag", [0x20000, *(1 << bit for bit in range(25, 31))], ids=hex)
def test_no_clone_makes_a_namespace(machine: Architecture, sockets: Sockets, flag: int) -> None:
    for flags in (flag, flag | 0x11, flag | (1 << 63)):
        assert judged(machine, sockets, "clone", flags) == EPERM


@BOTH
@SOCKETS
def test_nothing_types_into_a_terminal(machine: Architecture, sockets: Sockets) -> None:
    for request in (0x5412, 0x541C):
        # The kernel looks at the lower half alone, so the upper one is no way around.
        for upper in (0, 1 << 32, 0xFFFFFFFF << 32):
            assert judged(machine, sockets, "ioctl", 0, upper | request) == EPERM


@BOTH
def test_without_network_there_are_sockets_within_the_sandbox_alone(machine: Architecture) -> None:
    for domain in (0, 2, 10, 16, 17, 40, 0xFFFFFFFF):
        assert judged(machine, "none", "socket", domain, 1) == EPERM
        assert judged(machine, "none", "socketpair", domain, 1) == EPERM
        assert judged(machine, "all", "socket", domain, 1) == ALLOW
    for kind in (2, 3, 2 | 0x80000):
        assert judged(machine, "none", "socket", 1, kind) == EPERM
        assert judged(machine, "none", "socketpair", 1, kind) == EPERM
    assert judged(machine, "none", "connect") == EPERM
    assert judged(machine, "all", "connect") == ALLOW


@BOTH
def test_in_a_network_of_its_own_there_are_sockets_of_ip(machine: Architecture) -> None:
    for domain in (2, 10):
        for kind in (1, 2, 1 | 0x80000):
            assert judged(machine, "own", "socket", domain, kind) == ALLOW
        assert judged(machine, "own", "socketpair", domain, 1) == EPERM
    # Those of the Unix domain could connect to services outside.
    for domain in (0, 1, 16, 17, 40, 0xFFFFFFFF):
        assert judged(machine, "own", "socket", domain, 1) == EPERM
    for kind in (2, 3, 2 | 0x80000):
        assert judged(machine, "own", "socketpair", 1, kind) == EPERM
    assert judged(machine, "own", "connect") == ALLOW


@SOCKETS
def test_calls_of_other_architectures(sockets: Sockets) -> None:
    program = seccomp_filter(X86_64, sockets)
    for audit in (0x40000003, AARCH64.audit, 0):
        assert verdict(program, 1, audit=audit) == KILL
    # x32: the same architecture, and numbers of its own.
    assert verdict(program, 0x40000000 | 101, audit=X86_64.audit) == ENOSYS
    assert verdict(program, 0x40000000, audit=X86_64.audit) == ENOSYS
    program = seccomp_filter(AARCH64, sockets)
    assert verdict(program, 1, audit=0x40000028) == KILL


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        ([jump_if("equal", 1, "nowhere")], "there is no jump to `nowhere` from 0"),
        (["back", load(0), jump_if("equal", 1, "back")], "there is no jump to `back` from 1"),
        (
            [jump_if("equal", 1, "far"), *[load(0)] * (MAX_JUMP + 1), "far", end(1)],
            "there is no jump to `far` from 0",
        ),
        ([load(0)] * (MAX_INSTRUCTIONS + 1), "4097 instructions, and 4096 are allowed"),
    ],
)
def test_what_is_no_filter(lines: list[Line], problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}$"):
        assemble(lines)


def test_the_code_of_every_line() -> None:
    lines: list[Line] = [
        load(4),
        jump_if("equal", 7, "end"),
        keep_bits(15),
        jump_if("any_bit", 8, "end"),
        end(1),
        "end",
        end(2),
    ]
    assert list(struct.iter_unpack("=HBBI", assemble(lines))) == [
        (0x20, 0, 0, 4),
        (0x15, 3, 0, 7),
        (0x54, 0, 0, 15),
        (0x45, 1, 0, 8),
        (0x06, 0, 0, 1),
        (0x06, 0, 0, 2),
    ]
