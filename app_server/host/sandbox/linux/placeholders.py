"""Empty folders where something is protected that is not there: without one it could be made.

A mount needs something to lie on, so the folder is on the disk for as long as any command of any
server runs below it. Each of them holds a shared lock on the folder, and the last one removes it.
A server that was killed leaves an empty folder behind, which the next command below it removes.
Source: docs/tools.md, "Sandbox".
"""

import fcntl
import os
from contextlib import suppress

from app_server.permissions.placeholder import MODE

TRIES = 100
"""To get hold of a folder that others remove and make meanwhile."""


class Placeholder:
    """A claim on an empty folder, which was made for it or for another claim."""

    def __init__(self, path: str) -> None:
        """Make the folder if it is not there; blocks.

        Raises:
            OSError: it cannot be made.
        """
        self.path = path
        self._fd: int | None = self._claim()

    def _claim(self) -> int:
        for _ in range(TRIES):
            with suppress(FileExistsError):
                os.mkdir(self.path, MODE)  # noqa: PTH102 - the errors of the system are wanted
            try:
                fd = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            except FileNotFoundError:
                continue
            fcntl.flock(fd, fcntl.LOCK_SH)
            if self._is_there(fd):
                return fd
            os.close(fd)
        raise OSError(f"{self.path} cannot be held")

    def _is_there(self, fd: int) -> bool:
        """Whether the folder was not removed before it was locked."""
        try:
            return os.path.samestat(os.fstat(fd), os.lstat(self.path))
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Give the claim up, and remove the folder if it is empty and nobody else has one."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._is_there(fd):
                os.rmdir(self.path)  # noqa: PTH106
        except OSError:
            # Others hold it, or something is in it now.
            return
        finally:
            os.close(fd)
