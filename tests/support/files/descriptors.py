"""The descriptors of this process: which are open, and what happens when none is left."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def open_below(folder: Path) -> list[str]:
    """Name what this process has open of a folder: the files below it, and itself."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            path = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:
            continue
        if Path(path).is_relative_to(folder):
            found.append(path)
    return found


@contextmanager
def no_descriptor_left() -> Iterator[Callable[[], None]]:
    """Use up the descriptors of this process; gives what frees them."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    taken: list[int] = []
    try:
        while True:
            taken.append(os.dup(0))
    except OSError:
        pass

    def free() -> None:
        while taken:
            os.close(taken.pop())
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    try:
        yield free
    finally:
        free()
