"""What the processes of the tests keep of what was freed (pytest_plugins/memory.py)."""

import os
from pathlib import Path

import pytest

from tests.support.pytest_plugins.memory import IS_GLIBC

MIB = 1024 * 1024


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not IS_GLIBC, reason="other C libraries have other heaps")
def test_large_blocks_go_back_though_small_ones_between_them_stay() -> None:
    blocks: list[bytes] = [b"x" * 8 * MIB]
    blocks.clear()
    before = resident_bytes()
    small = []

    for _ in range(16):
        blocks.append(b"x" * 4 * MIB)
        small += [b"x" * 1000 for _ in range(1000)]
    # The small ones may find room that others left.
    assert resident_bytes() - before > 48 * MIB
    blocks.clear()
    assert resident_bytes() - before < 32 * MIB
