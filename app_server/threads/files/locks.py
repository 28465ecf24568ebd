"""The lock of a thread's only writer. Everything here blocks.

The system frees a lock when its holder dies, whatever the file says: `flock` belongs to the open
file, and no child of ours inherits that.
Source: docs/architecture.md, "Threads on disk".
"""

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic_core import from_json

from app_server.runtime.clock import STARTED_AT
from app_server.runtime.files.disk import lock_within, try_lock
from app_server.threads.failures import Holder

MAX_HOLDER_BYTES = 4096

LOOKS_S = (0.001, 0.005, 0.02)
"""Pauses between tries to take a lock that is held: looks last less, writers longer."""

SHORT_S = 10.0
"""Seconds to wait for the lock of a file that is being replaced."""


def _open_lock(path: Path) -> int:
    # What a link points to is nobody's lock, and must not be written.
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)


class LockBusy(Exception):
    """Another process has the lock; `holder` says which, as far as it is known."""

    def __init__(self, holder: Holder) -> None:
        super().__init__(str(holder))
        self.holder = holder


class WriterLock:
    """A lock file that names its holder; the system frees it when the holder dies."""

    def __init__(self, path: Path, address: str | None = None) -> None:
        """Take the lock; `address` is where clients find this process.

        Raises:
            LockBusy: somebody has it.
            OSError: the file cannot be made, or is a symbolic link.
        """
        self._path = path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            self._file = _open_lock(path)
            try:
                self._take()
                if self._is_current():
                    self._write_holder(Holder(os.getpid(), STARTED_AT, address))
                    return
            except BaseException:
                os.close(self._file)
                raise
            # The last holder removed the file between our open and our lock.
            os.close(self._file)

    def _take(self) -> None:
        for pause_s in LOOKS_S:
            if try_lock(self._file):
                return
            # Somebody may only have looked who holds it.
            time.sleep(pause_s)
        if not try_lock(self._file):
            raise LockBusy(_parse_holder(os.pread(self._file, MAX_HOLDER_BYTES, 0)))

    def _is_current(self) -> bool:
        try:
            return self._path.stat().st_ino == os.fstat(self._file).st_ino
        except FileNotFoundError:
            return False

    def _write_holder(self, holder: Holder) -> None:
        members = {"pid": holder.pid, "startedAt": holder.started_at, "address": holder.address}
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, json.dumps(members).encode(), 0)

    def release(self) -> None:
        """Give the lock back and remove its file.

        Raises:
            OSError: the file cannot be removed; the lock is free all the same.
        """
        try:
            self._path.unlink(missing_ok=True)
        finally:
            os.close(self._file)


class SharedLock:
    """Lock that any number of processes share, to find out whether one is alone."""

    def __init__(self, path: Path) -> None:
        """Take part; the file stays when everybody has gone.

        Raises:
            OSError: the file cannot be made.
        """
        self._file = _open_lock(path)
        fcntl.flock(self._file, fcntl.LOCK_SH)

    def is_only_one(self) -> bool:
        """Whether this process is the only holder at this moment."""
        try:
            return try_lock(self._file)
        finally:
            # A change that is refused gives the lock up; nobody keeps it alone.
            fcntl.flock(self._file, fcntl.LOCK_SH)

    def release(self) -> None:
        """Take part no more."""
        os.close(self._file)


@contextmanager
def short_lock(path: Path) -> Iterator[None]:
    """Hold a lock for a few operations on files, waiting up to SHORT_S for other holders.

    Raises:
        OSError: it cannot be had, which means that its holder hangs.
    """
    file = _open_lock(path)
    try:
        if not lock_within(file, SHORT_S):
            raise OSError(errno.EBUSY, "another process holds it", str(path))
        yield
    finally:
        os.close(file)


def holder_of(path: Path) -> Holder | None:
    """Say who holds a lock, without taking it for longer than a look; None when it is free.

    Raises:
        OSError: the file cannot be read; FileNotFoundError means that it is free.
    """
    file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    try:
        is_free = try_lock(file, fcntl.LOCK_SH)
        return None if is_free else _parse_holder(os.pread(file, MAX_HOLDER_BYTES, 0))
    finally:
        os.close(file)


def known_holder(path: Path) -> Holder | None:
    """Say who holds a lock; None also where its file cannot be read."""
    try:
        return holder_of(path)
    except OSError:
        return None


def _parse_holder(content: bytes) -> Holder:
    try:
        members = from_json(content)
    except ValueError:
        return Holder()
    if not isinstance(members, dict):
        return Holder()
    pid, started_at, address = (members.get(name) for name in ("pid", "startedAt", "address"))
    return Holder(
        pid if isinstance(pid, int) else None,
        started_at if isinstance(started_at, int) else None,
        address if isinstance(address, str) else None,
    )
