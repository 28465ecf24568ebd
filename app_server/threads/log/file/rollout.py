"""One thread's log file: appending and reading. Everything here blocks.

An append is one write, followed by a sync to disk when asked. A torn last line (the process died in
the middle of a write) is dropped: by readers for themselves, by the next writer for good. Whatever
else makes no sense is skipped, counted and kept.
Source: docs/wire.md, "Rollout lines".
"""

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from app_server.runtime.files.disk import make_folder, sync_folder
from app_server.threads.log.file.descriptors import open_file
from app_server.threads.log.file.locks import WriterLock
from protocol.log.rollout import Record, render_record

logger = logging.getLogger(__name__)

_sync_file = getattr(os, "fdatasync", os.fsync)


class RolloutWriter:
    """The end of one log file; between two appends its lock is all that is open."""

    def __init__(self, path: Path, lock: WriterLock, *, must_exist: bool = False) -> None:
        """Open a log, or begin it unless it `must_exist`; a torn last line is cut off.

        Raises:
            FileNotFoundError: it must exist, and does not.
            OSError: the file cannot be opened or repaired.
        """
        self._lock = lock
        self.path = path
        self.torn_bytes = 0
        """Of the torn last line that was cut off."""
        is_new = not must_exist and not path.exists()
        if is_new:
            make_folder(path.parent)
        with open_file(path, os.O_RDWR | (os.O_CREAT if is_new else 0)) as file:
            if is_new:
                _sync_new(path)
            self._length = whole_lines(file)
            self.torn_bytes = os.fstat(file).st_size - self._length
            if self.torn_bytes:
                logger.warning("cut a torn line of %d bytes off %s", self.torn_bytes, path)
                os.ftruncate(file, self._length)

    def append(self, records: Sequence[Record], *, sync: bool) -> list[int]:
        """Add records in one write and return their sizes; all are there afterwards, or none.

        With `sync` they are on disk when this returns; without, they survive the death of this
        process, but perhaps not of the machine.

        Raises:
            FileNotFoundError: somebody has removed the log.
            OSError: the disk refused; nothing was added.
        """
        lines = list(map(render_record, records))
        content = b"".join(lines)
        with open_file(self.path, os.O_WRONLY | os.O_APPEND) as file:
            # A disk that refuses a write may refuse to cut off what it has taken of it, too.
            if os.fstat(file).st_size > self._length:
                os.ftruncate(file, self._length)
            try:
                written = 0
                while written < len(content):
                    written += os.write(file, content[written:])
                if sync:
                    _sync_file(file)
            except OSError:
                os.ftruncate(file, self._length)
                raise
        self._length += len(content)
        return list(map(len, lines))

    @property
    def length(self) -> int:
        """Bytes of the log: whole lines, and whole groups of them."""
        return self._length

    def close(self) -> None:
        """Free the lock."""
        self._lock.release()


def _sync_new(path: Path) -> None:
    try:
        sync_folder(path.parent)
    except BaseException:
        # A log without a line is nobody's.
        path.unlink(missing_ok=True)
        raise


def whole_lines(file: int) -> int:
    """Return the length of a file up to the end of its last whole line."""
    size = os.fstat(file).st_size
    step = 64 * 1024
    end = size
    while end > 0:
        start = max(0, end - step)
        newline = os.pread(file, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
