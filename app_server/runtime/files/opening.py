"""Opening what may be a pipe by now, without waiting for who is at its other end. It blocks.

Source: fifo(7); open(2), O_NONBLOCK.
"""

import os
import stat
from typing import BinaryIO


def without_waiting(path: str, flags: int) -> int:
    """Open a path at once, whatever it is: an `opener` of `open`."""
    return os.open(path, flags | os.O_NONBLOCK)


def open_regular(path: str | os.PathLike[str]) -> BinaryIO | None:
    """Open a regular file for reading; None where something else is.

    Raises:
        OSError: nothing is there, or it cannot be read.
    """
    opened = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(opened).st_mode):
        return os.fdopen(opened, "rb")
    os.close(opened)
    return None
