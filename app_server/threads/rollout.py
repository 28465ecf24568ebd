"""One thread's log file: appending, reading, and the lock of its only writer.

Everything here blocks.

An append is one write, followed by a sync to disk when asked. A torn last line (the process died in
the middle of a write) is dropped: by readers silently, by the next writer for good.
Source: docs/wire.md, "Rollout lines".
"""

import fcntl
import json
import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from app_server.threads.reverts import dropped_in
from protocol.rollout import Record, parse_record, render_record

logger = logging.getLogger(__name__)

_sync_file = getattr(os, "fdatasync", os.fsync)


class LogBusy(Exception):
    """Another process writes this thread; `holder` says which, as far as it is known."""

    def __init__(self, holder: str) -> None:
        super().__init__(holder)
        self.holder = holder


class WriterLock:
    """A lock file that names its holder; the system frees it when the holder dies."""

    def __init__(self, path: Path) -> None:
        """Take the lock.

        Raises:
            LogBusy: somebody has it.
            OSError: the file cannot be made.
        """
        self._path = path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        while True:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                holder = os.read(self._file, 256).decode(errors="replace").strip()
                os.close(self._file)
                raise LogBusy(holder or "unknown") from None
            if self._is_current():
                break
            # The last holder removed the file between our open and our lock.
            os.close(self._file)
        os.ftruncate(self._file, 0)
        os.write(self._file, json.dumps({"pid": os.getpid()}).encode())

    def _is_current(self) -> bool:
        try:
            return self._path.stat().st_ino == os.fstat(self._file).st_ino
        except FileNotFoundError:
            return False

    def release(self) -> None:
        """Give the lock back and remove its file."""
        self._path.unlink(missing_ok=True)
        os.close(self._file)


class RolloutWriter:
    """The end of one log file."""

    def __init__(self, path: Path, lock: WriterLock) -> None:
        """Open a log, or begin it, behind its lock; a torn last line is cut off.

        Raises:
            OSError: the file cannot be opened or mended.
        """
        self._lock = lock
        self.path = path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        is_new = not path.exists()
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(path, flags, 0o600)
        if is_new:
            sync_folder(path.parent)
        try:
            self._length = _whole_lines(self._file)
            if self._length < os.fstat(self._file).st_size:
                logger.warning("cut a torn line off %s", path)
                os.ftruncate(self._file, self._length)
        except BaseException:
            os.close(self._file)
            raise

    def append(self, records: Sequence[Record], *, sync: bool) -> list[int]:
        """Add records in one write and return their sizes; all are there afterwards, or none.

        With `sync` they are on disk when this returns; without, they survive the death of this
        process, but perhaps not of the machine.

        Raises:
            OSError: the disk refused; nothing was added.
        """
        lines = list(map(render_record, records))
        content = b"".join(lines)
        try:
            written = 0
            while written < len(content):
                written += os.write(self._file, content[written:])
            if sync:
                _sync_file(self._file)
        except OSError:
            os.ftruncate(self._file, self._length)
            raise
        self._length += len(content)
        return list(map(len, lines))

    @property
    def length(self) -> int:
        """Bytes of the log: whole lines, and whole groups of them."""
        return self._length

    def close(self) -> None:
        """Close the file and free the lock."""
        os.close(self._file)
        self._lock.release()


def sync_folder(path: Path) -> None:
    """Put what a folder lists on disk."""
    folder = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _whole_lines(file: int) -> int:
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


def read_rollout(path: Path) -> Iterator[Record]:
    """Read what counts of a log from its beginning.

    Lines that make no sense are skipped; a torn last one, and what reverts dropped, are left out.

    Raises:
        FileNotFoundError: there is no such log.
        OSError: it cannot be read.
    """
    dropped = dropped_in(path)
    end = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith(b"\n"):
                return
            start, end = end, end + len(line)
            record = parse_record(line)
            if record is None:
                logger.warning("%s:%d: skipped a line", path, number)
            elif not dropped.has(record.type, start):
                yield record
