"""What the processes of the tests keep of what was freed (pytest_plugins/memory.py)."""

import json
import subprocess
import sys

import pytest

from tests.support.harness import WAIT_S
from tests.support.pytest_plugins.memory import IS_GLIBC

MIB = 1024 * 1024

PROGRAM = f"""
import json, os, sys
from tests.support.pytest_plugins import memory

def resident_bytes():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

# From then on the C library keeps what is smaller, unless it was told not to.
blocks = [b"x" * {8 * MIB}]
blocks.clear()
before = resident_bytes()
small = []
for _ in range(16):
    blocks.append(b"x" * {4 * MIB})
    small += [b"x" * 1000 for _ in range(1000)]
full = resident_bytes()
blocks.clear()
json.dump([full - before, resident_bytes() - before], sys.stdout)
"""
"""A process of its own: in that of the tests, what earlier tests left is freed meanwhile."""


@pytest.mark.skipif(not IS_GLIBC, reason="other C libraries have other heaps")
def test_large_blocks_go_back_though_small_ones_between_them_stay() -> None:
    printed = subprocess.check_output([sys.executable, "-c", PROGRAM], timeout=WAIT_S)

    with_all, with_small_ones = json.loads(printed)
    assert with_all > 64 * MIB
    assert 0 < with_small_ones < 32 * MIB
