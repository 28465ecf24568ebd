"""Files and folders that survive a loss of power, and locks between processes. All of it blocks.

Source: fsync(2), rename(2), flock(2).
"""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

LOCK_POLL_S = 0.01

FULL_OR_READ_ONLY = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
"""Error numbers of a full or read-only disk: no fault of the program, so no traceback helps."""


def sync_folder(path: Path) -> None:
    """Write the entries of a folder to the disk.

    Raises:
        OSError: the disk refused.
    """
    folder = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def make_folder(path: Path) -> None:
    """Make a folder and missing ones above it, and sync their entries.

    Raises:
        OSError: one of them cannot be made.
    """
    missing: list[Path] = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        folder.mkdir(mode=0o700, exist_ok=True)
    # After all are made: the first takes the others along, and a disk is waited for once.
    for folder in reversed(missing):
        sync_folder(folder.parent)


@contextmanager
def atomic_write(path: Path, draft: Path) -> Iterator[BinaryIO]:
    """Give a file to write, mode 0600, which is at `path` afterwards: on disk, as a whole, or not.

    It is written at `draft`, in the same folder, and deleted when anything fails.

    Raises:
        OSError: the disk refused.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(draft, flags, 0o600), "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        with suppress(OSError):
            draft.unlink()
        raise
    sync_folder(path.parent)


def try_lock(file: int, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file without waiting; whether it is locked now."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_within(file: int, wait_s: float, kind: int = fcntl.LOCK_EX) -> bool:
    """Lock an open file; False if others have held it for `wait_s`."""
    give_up = time.monotonic() + wait_s
    while not try_lock(file, kind):
        if time.monotonic() >= give_up:
            return False
        time.sleep(LOCK_POLL_S)
    return True
