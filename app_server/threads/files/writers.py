"""Files of logs: their paths, the writer of each, and its lock. Everything here blocks.

An append is one write, followed by a sync to disk when asked. A torn last line (the process died in
the middle of a write) is dropped: by readers for themselves, by the next writer for good. Other
lines that make no sense are skipped, counted and kept. One descriptor is kept back, so that an
accepted thread can be written when all others are taken.
Source: docs/wire.md, "Rollout lines"; docs/storage.md, "Descriptors"; docs/architecture.md,
"Invariants".
"""

import errno
import logging
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import BinaryIO, NamedTuple

import anyio.to_thread

from app_server.runtime.clock import STARTED_AT
from app_server.runtime.files.disk import atomic_write, make_folder, sync_folder
from app_server.threads.failures import Holder, InvalidThreadId, ThreadBusy, uuid_of
from app_server.threads.files.locks import LockBusy, WriterLock, known_holder
from app_server.threads.log.live import LogEnd
from app_server.threads.log.reading import load_state
from app_server.threads.log.state import ThreadState
from protocol.log.rollout import Record, ThreadCreated, render_record

LAST_DAY_MS = 253_402_214_400_000
"""The last day that a folder can be named after; an id may hold later times."""


class LogPaths:
    """The logs below one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path_of(self, thread_id: str) -> Path:
        """Return where a thread's log is or would be.

        Raises:
            InvalidThreadId: not a UUID in its usual form.
        """
        parsed = uuid_of(thread_id)
        born_ms = parsed.int >> 80
        if parsed.version != 7 or born_ms > LAST_DAY_MS:
            return self.folder / "other" / f"{thread_id}.jsonl"
        born = datetime.fromtimestamp(born_ms / 1000, UTC)
        return self.folder / f"{born:%Y/%m/%d}" / f"{thread_id}.jsonl"

    def exists(self, thread_id: str) -> bool:
        """Whether there is a log; text that is no id has none."""
        try:
            return self.path_of(thread_id).exists()
        except InvalidThreadId:
            return False


MENTION_CHUNK = 1 << 18
"""Bytes that are looked through at a time."""


class FileLog(NamedTuple):
    """The log in a file."""

    path: Path

    def __str__(self) -> str:
        """Give its path."""
        return str(self.path)

    def open(self) -> BinaryIO:
        """Open it for reading at any offset, from its beginning on; the caller closes it."""
        return self.path.open("rb")

    def size(self) -> int:
        """Count its bytes."""
        return self.path.stat().st_size

    def mentions(self, mark: bytes) -> bool:
        """Whether a line has these bytes; faster than to read the lines."""
        with self.path.open("rb") as file:
            before = b""
            while chunk := file.read(MENTION_CHUNK):
                if mark in before + chunk:
                    return True
                before = chunk[-len(mark) :]
        return False


_EXHAUSTED = (errno.EMFILE, errno.ENFILE)


class _Spare:
    """A descriptor of nothing, which gives way to one of something."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._file: int | None = None

    def keep(self) -> None:
        """Have a descriptor if that can be."""
        if self._file is None:
            with suppress(OSError):
                self._file = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)

    def give_way(self) -> None:
        """Have none."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


_spare = _Spare()


@contextmanager
def open_file(path: Path, flags: int) -> Iterator[int]:
    """Open a file for as long as the context lasts; a new one is for its owner alone.

    Raises:
        OSError: see os.open. With no descriptor left, callers take turns with the spare one.
    """
    with _spare.lock:
        _spare.keep()
    flags |= os.O_CLOEXEC
    try:
        file = os.open(path, flags, 0o600)
    except OSError as exc:
        if exc.errno not in _EXHAUSTED:
            raise
        with _spare.lock:
            _spare.give_way()
            try:
                file = os.open(path, flags, 0o600)
                try:
                    yield file
                finally:
                    os.close(file)
            finally:
                _spare.keep()
        return
    try:
        yield file
    finally:
        os.close(file)


logger = logging.getLogger(__name__)

_sync_file = getattr(os, "fdatasync", os.fsync)


class LogWriter:
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
        """Of the torn last line that was cut off, or of a torn append."""
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

    def cut(self, torn_bytes: int) -> None:
        """Cut off whole lines at the end, of an append that is not there as a whole.

        Raises:
            OSError: the file cannot be repaired.
        """
        logger.warning("cut a torn append of %d bytes off %s", torn_bytes, self.path)
        with open_file(self.path, os.O_WRONLY) as file:
            os.ftruncate(file, self._length - torn_bytes)
        self._length -= torn_bytes
        self.torn_bytes += torn_bytes

    @property
    def end(self) -> LogEnd:
        """Bytes of the log: whole lines, and whole groups of them."""
        return LogEnd(self._length)

    def close(self) -> None:
        """Free the lock."""
        self._lock.release()


class FileWriter:
    """A `LogWriter` whose work is done in worker threads."""

    def __init__(self, log: LogWriter) -> None:
        self._log = log

    @property
    def end(self) -> LogEnd:
        """Bytes of the log: whole lines, and whole groups of them."""
        return self._log.end

    async def append(
        self, records: Sequence[Record], before: ThreadState, *, sync: bool
    ) -> Sequence[int]:
        """Add records; see RecordWriter.append."""
        return await anyio.to_thread.run_sync(partial(self._log.append, records, sync=sync))

    async def read_before(self, turn_id: str) -> ThreadState:
        """Read the log again, as a revert to before a turn will leave it."""
        read = partial(load_state, FileLog(self._log.path), before_turn_id=turn_id)
        return await anyio.to_thread.run_sync(read)

    @property
    def is_lost(self) -> bool:
        """False: the lock is this process's as long as it runs."""
        return False

    async def require_owned(self) -> None:
        """Do nothing: the lock is this process's as long as it runs."""

    async def close(self) -> None:
        """Free the lock."""
        await anyio.to_thread.run_sync(self._log.close)


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


FORK_CHUNK = 1 << 20
"""Bytes that are copied at a time."""


def write_fork(
    source: Path, ranges: Sequence[tuple[int, int]], created: ThreadCreated, target: Path
) -> None:
    """Write a new log: its first line, then the ranges; it is there as a whole, on disk, or not.

    Raises:
        OSError: the disk refused; there is no new log.
    """
    make_folder(target.parent)
    draft = target.with_suffix(".part")
    with source.open("rb") as old, atomic_write(target, draft) as new:
        new.write(render_record(created))
        for start, end in ranges:
            old.seek(start)
            left = end - start
            while left > 0 and (chunk := old.read(min(left, FORK_CHUNK))):
                new.write(chunk)
                left -= len(chunk)


class LogWriters:
    """The writers that this process has opened, and the locks of all threads of a home."""

    def __init__(self, locks: Path, paths: LogPaths, address: str | None = None) -> None:
        """`locks` is the folder of the lock files."""
        self.locks = locks
        self.address = address
        """Address of this process for clients, written into its locks."""
        self.held: set[str] = set()
        """Threads that this process writes."""
        self._paths = paths

    def open(self, thread_id: str, *, must_exist: bool = False) -> LogWriter:
        """Take the lock of a thread, and open its log or begin it.

        Raises:
            ThreadBusy: another process writes it.
            FileNotFoundError: there is no log, and it `must_exist`.
            OSError: the disk refused.
        """
        path = self._paths.path_of(thread_id)
        lock = self._take_lock(thread_id)
        try:
            return LogWriter(path, lock, must_exist=must_exist)
        except BaseException:
            lock.release()
            raise

    @contextmanager
    def locked(self, thread_id: str) -> Iterator[None]:
        """Hold the lock of a thread that has no writer.

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

    def is_own(self, thread_id: str, holder: Holder) -> bool:
        """Whether it is this process that holds a thread, perhaps only to repair its row."""
        # A row is repaired behind a lock without an address.
        is_here = (holder.pid, holder.started_at) == (os.getpid(), STARTED_AT)
        return thread_id in self.held or (is_here and holder.address in (None, self.address))

    def _take_lock(self, thread_id: str) -> WriterLock:
        try:
            return WriterLock(self.locks / f"{thread_id}.lock", self.address)
        except LockBusy as exc:
            raise ThreadBusy(exc.holder) from exc
