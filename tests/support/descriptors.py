"""A process in which no descriptor is left."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager


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
