"""Which process writes a thread: locks and writers of logs. Everything here blocks.

Source: docs/architecture.md, "Invariants".
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app_server.threads.failures import ThreadBusy
from app_server.threads.log.file.locks import Holder, LockBusy, WriterLock, known_holder
from app_server.threads.log.file.paths import LogPaths
from app_server.threads.log.file.rollout import RolloutWriter


class LogWriters:
    """The writers that this process has opened, and the locks of all threads of a home."""

    def __init__(self, locks: Path, paths: LogPaths) -> None:
        """`locks` is the folder of the lock files."""
        self.locks = locks
        self.address: str | None = None
        """Where clients find this process; its locks say so."""
        self.held: set[str] = set()
        """Threads that this process writes."""
        self._paths = paths

    def open(self, thread_id: str, *, must_exist: bool = False) -> RolloutWriter:
        """Take the lock of a thread, and open its log or begin it.

        Raises:
            ThreadBusy: another process writes it.
            FileNotFoundError: there is no log, and it `must_exist`.
            OSError: the disk refused.
        """
        path = self._paths.path_of(thread_id)
        lock = self._take_lock(thread_id)
        try:
            return RolloutWriter(path, lock, must_exist=must_exist)
        except BaseException:
            lock.release()
            raise

    @contextmanager
    def locked(self, thread_id: str) -> Iterator[None]:
        """Keep other processes from a thread that nobody writes.

        Raises:
            ThreadBusy: another process writes it.
        """
        lock = self._take_lock(thread_id)
        try:
            yield
        finally:
            lock.release()

    def holder(self, thread_id: str) -> Holder | None:
        """Return which process writes a thread, perhaps this one; None if none is known."""
        return known_holder(self.locks / f"{thread_id}.lock")

    def _take_lock(self, thread_id: str) -> WriterLock:
        try:
            return WriterLock(self.locks / f"{thread_id}.lock", self.address)
        except LockBusy as exc:
            raise ThreadBusy(exc.holder) from exc
