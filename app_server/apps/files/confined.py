"""Opening a file where only some may be read: part by part, from the root of the file system.

Every folder on the way is opened in the one before, and no link is followed by the system: where a
link leads is read and walked like the rest. What is asked about and opened in the end is therefore
the real path, whatever is put in its way meanwhile.
Source: docs/apps.md, "Files".
"""

import errno
import os
import stat
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar

from app_server.apps.files.files import FileRefused
from app_server.apps.files.readable import Parts

CONFINED = "the sandbox of this turn does not let this file be read"

MAX_LINKS = 40
"""On the way to one file; that is what Linux allows as well."""

MAX_PARTS = 4096
"""Of one path, those of links included."""

MAX_FOLDERS = 128
"""That a file may lie below; each is open meanwhile."""

_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Found = TypeVar("Found")

Allows = Callable[[Parts], bool]
"""Whether a real path may be read."""


def look_at(path: str, allows: Allows) -> os.stat_result:
    """Look at what an absolute path leads to; blocks.

    Raises:
        FileRefused: it may not be read, or is not there.
    """
    return _walk(path, allows, lambda name, folder, found: found)


def open_file(path: str, allows: Allows) -> BinaryIO:
    """Open a regular file for reading; blocks.

    Raises:
        FileRefused: it may not be read, is not there, or is something else.
    """
    return _walk(path, allows, _open_regular)


def _open_regular(name: str, folder: int, found: os.stat_result) -> BinaryIO:
    opened = os.open(name, _FILE, dir_fd=folder)
    # It may have become a pipe meanwhile, which would be waited for without an end.
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise FileRefused("it is not a file")
    return os.fdopen(opened, "rb")


def _walk(path: str, allows: Allows, use: Callable[[str, int, os.stat_result], Found]) -> Found:  # noqa: C901, PLR0912 - one step of a walk is one place to read
    """Go to a path and use its name in its folder, if it may be read."""
    ahead = deque(Path(path).parts[1:])
    behind: list[str] = []
    folders = [os.open("/", _FOLDER)]
    links = walked = 0
    try:
        while True:
            name = ahead.popleft() if ahead else "."
            walked += 1
            if walked > MAX_PARTS or len(folders) > MAX_FOLDERS:
                raise FileRefused("it cannot be read")
            here = (*behind, name)
            try:
                if name == "..":
                    if behind:
                        behind.pop()
                        os.close(folders.pop())
                    if ahead:
                        continue
                    name, here = ".", tuple(behind)
                found = os.stat(name, dir_fd=folders[-1], follow_symlinks=False)
                if stat.S_ISLNK(found.st_mode):
                    links += 1
                    if links > MAX_LINKS:
                        raise OSError(errno.ELOOP, "too many links")
                    target = os.readlink(name, dir_fd=folders[-1])
                    if target.startswith("/"):
                        behind.clear()
                        while len(folders) > 1:
                            os.close(folders.pop())
                    ahead.extendleft(
                        reversed([part for part in target.split("/") if part not in ("", ".")])
                    )
                elif ahead:
                    folders.append(os.open(name, _FOLDER, dir_fd=folders[-1]))
                    behind.append(name)
                else:
                    if not allows(tuple(part for part in here if part != ".")):
                        raise FileRefused(CONFINED)
                    return use(name, folders[-1], found)
            except (OSError, ValueError) as exc:
                # Nobody learns whether something is there that may not be read.
                reason = CONFINED
                if allows(here):
                    reason = _reason(exc.errno if isinstance(exc, OSError) else None)
                raise FileRefused(reason) from None
    finally:
        for folder in folders:
            os.close(folder)


def _reason(number: int | None) -> str:
    return "it cannot be read" if number is None else os.strerror(number)
