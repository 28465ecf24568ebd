"""What a test has freed goes back to the machine.

A process of the tests imports all that is tested, and then runs thousands of tests, some with
megabytes of text. Without this it takes as much as its greediest test, several times over: pieces
of what was freed stay behind in every thread's heap. Where the C library is not glibc, only the
garbage is collected.
Source: https://man7.org/linux/man-pages/man3/mallopt.3.html
"""

import ctypes
import gc
import itertools
import sys
from collections.abc import Iterator
from typing import Any

import pytest

TESTS_PER_COLLECTION = 20
TESTS_PER_TRIM = 50
TESTS_PER_WHOLE_COLLECTION = 400

M_TRIM_THRESHOLD = -1
M_MMAP_THRESHOLD = -3
M_ARENA_MAX = -8
LARGE_BYTES = 1024 * 1024
"""What is larger has pages of its own, given back when it is freed: no buffer of a socket has."""

NOT_KEPT = {
    "item_index",
    "keywords",
    "node",
    "start",
    "stop",
    "testrun_uid",
    "worker_id",
}
"""What nobody reads of the report of a test that passed once it is counted."""

_libc = ctypes.CDLL(None)
IS_GLIBC = sys.platform == "linux" and hasattr(_libc, "gnu_get_libc_version")
_teardowns = itertools.count(1)

if IS_GLIBC:
    _libc.mallopt(M_ARENA_MAX, 1)
    # Otherwise it grows to the largest that was ever freed, up to 32 MiB.
    _libc.mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
    _libc.mallopt(M_TRIM_THRESHOLD, 8 * LARGE_BYTES)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[Any]:
    """Collect no garbage while the tests are imported: what is made there stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """Take what was imported out of collections of garbage, which take long with it."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Keep less of what went well: the reports of all tests are kept until the end."""
    if report.passed:
        for name in NOT_KEPT & vars(report).keys():
            delattr(report, name)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    """Free what earlier tests left, and now and then what a server has frozen with its modules."""
    number = next(_teardowns)
    if number % TESTS_PER_COLLECTION == 0:
        if number % TESTS_PER_WHOLE_COLLECTION == 0:
            gc.unfreeze()
        gc.collect()
        gc.freeze()
    if IS_GLIBC and number % TESTS_PER_TRIM == 0:
        _libc.malloc_trim(0)
