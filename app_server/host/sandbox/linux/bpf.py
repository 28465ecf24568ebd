"""An assembler for the filters of seccomp: classic BPF, with names for where jumps go.

Source: https://www.kernel.org/doc/html/latest/userspace-api/seccomp_filter.html.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

MAX_INSTRUCTIONS = 4096
"""Of a filter, as Linux has it."""

MAX_JUMP = 255
"""Instructions that a conditional jump can pass over."""

_LOAD_WORD = 0x20
_AND = 0x54
_RETURN = 0x06
_JUMPS = {"equal": 0x15, "above": 0x25, "at_least": 0x35, "any_bit": 0x45}

Test: TypeAlias = Literal["equal", "above", "at_least", "any_bit"]


@dataclass(frozen=True, slots=True)
class Load:
    """Put 32 bits of what is filtered into the accumulator."""

    offset: int
    """In bytes."""


@dataclass(frozen=True, slots=True)
class And:
    """Keep only some bits of the accumulator."""

    mask: int


@dataclass(frozen=True, slots=True)
class Return:
    """End with a verdict."""

    verdict: int


@dataclass(frozen=True, slots=True)
class JumpIf:
    """Go on at a name if a test of the accumulator holds, else with what follows."""

    test: Test
    value: int
    to: str


@dataclass(frozen=True, slots=True)
class Name:
    """Name the instruction that follows."""

    name: str


Line: TypeAlias = Load | And | Return | JumpIf | Name


def assemble(lines: Sequence[Line]) -> bytes:
    """Return the filter as an array of `struct sock_filter`, in the byte order of this machine.

    Raises:
        ValueError: a jump is too long, goes back or nowhere, or the filter is too long.
    """
    places: dict[str, int] = {}
    code: list[Load | And | Return | JumpIf] = []
    for line in lines:
        if isinstance(line, Name):
            places[line.name] = len(code)
        else:
            code.append(line)
    if len(code) > MAX_INSTRUCTIONS:
        raise ValueError(f"{len(code)} instructions, and {MAX_INSTRUCTIONS} are allowed")
    return b"".join(_encode(line, here, places) for here, line in enumerate(code))


def _encode(line: Load | And | Return | JumpIf, here: int, places: dict[str, int]) -> bytes:
    match line:
        case Load(offset):
            return _pack(_LOAD_WORD, 0, offset)
        case And(mask):
            return _pack(_AND, 0, mask)
        case Return(verdict):
            return _pack(_RETURN, 0, verdict)
        case JumpIf(test, value, to):
            over = places.get(to, -1) - here - 1
            if not 0 <= over <= MAX_JUMP:
                raise ValueError(f"there is no jump to `{to}` from {here}")
            return _pack(_JUMPS[test], over, value)


def _pack(code: int, jump: int, value: int) -> bytes:
    return struct.pack("=HBBI", code, jump, 0, value)
