"""A check whose token, or secret, is read anew when its file changes: rotation without a restart.

A file that is missing, or makes no sense, changes nothing: whoever replaces it may remove the old
one first, and a slip must not lock every client out. To take a token back, write another one.
Source: docs/listeners.md, "Rotation".
"""

import logging
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, TypeAlias

import anyio
import anyio.to_thread

logger = logging.getLogger(__name__)

Version: TypeAlias = tuple[int, int, int, int, int]
"""What tells a file from the one that was there before: device, inode, size, times."""


class TokenCheck(Protocol):
    """Tells the tokens that let a client in from others."""

    def accepts(self, token: str) -> bool:
        """Whether a token lets its bearer in; never raises."""
        ...


class RotatedCheck:
    """The check that a file makes, which somebody may replace."""

    def __init__(self, path: Path, check: TokenCheck, make: Callable[[Path], TokenCheck]) -> None:
        """Begin with a check that was made of the file at the start.

        `make` reads the file again, in a worker thread; it raises ValueError for a content that
        makes no sense, and OSError.
        """
        self._path = path
        self._check = check
        self._make = make
        self._looking = anyio.Lock()
        self._version: Version | None = None
        self._failure: str | None = None

    async def current(self) -> TokenCheck:
        """Look at the file, read it if it is another one, and return what holds now.

        One look at a time: on a file system that hangs, one worker thread waits, and not one for
        each request.
        """
        async with self._looking:
            await anyio.to_thread.run_sync(self._look)
        return self._check

    def _look(self) -> None:
        try:
            version = _version_of(self._path)
            if version == self._version:
                return
            self._check = self._make(self._path)
        except OSError as exc:
            # It is tried again with each request, as nothing of the file may have to change.
            self._version = None
            self._fail(exc.strerror or type(exc).__name__)
        except ValueError as exc:
            self._version = version
            self._fail(str(exc))
        else:
            self._version = version
            self._failure = None

    def _fail(self, why: str) -> None:
        if why != self._failure:
            logger.warning("%s: %s; what was read from it last still holds", self._path, why)
        self._failure = why


def _version_of(path: Path) -> Version:
    there = path.stat()
    if not stat.S_ISREG(there.st_mode):
        # To open a pipe would wait for somebody who writes into it.
        raise OSError(None, "it is no file any more")
    return (there.st_dev, there.st_ino, there.st_size, there.st_mtime_ns, there.st_ctime_ns)
