"""Folders in which something is put together before it is moved to its place as a whole.

Everything here blocks: call it in a worker thread.
Source: docs/plugins.md, "Installing", "Repositories".
"""

import errno
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

from app_server.runtime.loader import load_from_worker

LEFT_AFTER_S = 3_600.0
"""A folder that is older was left by a process that was killed."""


def make_staging(parent: Path) -> Path:
    """Make a folder of its own below `parent`, and delete what was left there long ago.

    Raises:
        OSError
    """
    parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for folder in parent.iterdir():
        # Another process may clear away, too.
        with suppress(FileNotFoundError):
            if folder.lstat().st_mtime < time.time() - LEFT_AFTER_S:
                shutil.rmtree(folder, ignore_errors=True)
    return Path(tempfile.mkdtemp(dir=parent))


def put_in_place(new: Path, place: Path) -> None:
    """Move a folder to its place; what was there is at `new` afterwards.

    Whoever looks sees the old folder or the new one, and so does who looks after this process was
    killed. Only a file system that cannot exchange two names has a moment with neither.

    Raises:
        OSError: nothing has changed.
    """
    if not os.path.lexists(place):
        new.rename(place)
        return
    exchange = load_from_worker(_exchange)
    failure = errno.ENOSYS if exchange is None else exchange(os.fsencode(new), os.fsencode(place))
    if failure in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        _put_in_steps(new, place)
    elif failure != 0:
        raise OSError(failure, os.strerror(failure), str(place))


def _put_in_steps(new: Path, place: Path) -> None:
    aside = new.with_name(f"{new.name}.aside")
    place.rename(aside)
    try:
        new.rename(place)
    except OSError:
        aside.rename(place)
        raise
    aside.rename(new)


Exchange: TypeAlias = Callable[[bytes, bytes], int]
"""Exchanges two names in one step; returns 0 or an errno."""

AT_FDCWD = -100
EXCHANGE = 2
"""RENAME_EXCHANGE of Linux, RENAME_SWAP of macOS."""


def _exchange() -> Exchange | None:
    """Return what the system has for it. Source: renameat2(2), renamex_np(2) of macOS."""
    # Most servers put nothing in place.
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)

    def linux(one: bytes, other: bytes) -> int:
        done = libc.renameat2(AT_FDCWD, one, AT_FDCWD, other, EXCHANGE)
        return 0 if done == 0 else ctypes.get_errno()

    def macos(one: bytes, other: bytes) -> int:
        return 0 if libc.renamex_np(one, other, EXCHANGE) == 0 else ctypes.get_errno()

    if sys.platform == "darwin":
        return macos
    return linux if hasattr(libc, "renameat2") else None
