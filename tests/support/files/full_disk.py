"""A disk that refuses what a server writes."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

NO_BYTECODE = {"PYTHONDONTWRITEBYTECODE": "1"}
"""For a server whose files are cut: Python 3.11 would leave the bytecode of modules cut, too."""


@contextmanager
def full_disk(pid: int, limit_bytes: int) -> Iterator[None]:
    """Let no file of a process grow beyond a size; it was started with NO_BYTECODE."""
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit_bytes, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
