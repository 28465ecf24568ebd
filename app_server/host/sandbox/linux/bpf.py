"""An assembler for the filters of seccomp: classic BPF, with names for where jumps go.

Source: https://www.kernel.org/doc/html/latest/userspace-api/seccomp_filter.html.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass
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
    """Put 32 bits of what is filtered into the accumulator, from so many bytes on."""
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
