"""Opening a file where only some may be read, in the words that a call is refused with.

Source: docs/apps.md, "Files".
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO

from app_server.apps.files.files import FileRefused
from app_server.permissions.readable import Parts, parts_of
from app_server.runtime import reaching

CONFINED = "the sandbox of this turn does not let this file be read"

Allows = Callable[[Parts], bool]
"""Whether a real path may be read."""


def look_at(path: str, allows: Allows) -> os.stat_result:
    """Look at what an absolute path leads to; blocks.

    Raises:
        FileRefused: it may not be read, or is not there.
    """
    with _in_words():
        return reaching.look_at(path, lambda real: allows(parts_of(real)))


def open_file(path: str, allows: Allows) -> BinaryIO:
    """Open a regular file for reading; blocks.

    Raises:
        FileRefused: it may not be read, is not there, or is something else.
    """
    with _in_words():
        return reaching.open_file(path, lambda real: allows(parts_of(real)))


@contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except reaching.PathDenied:
        raise FileRefused(CONFINED) from None
    except reaching.NotReached as exc:
        raise FileRefused(str(exc)) from None
