"""A log of JSON lines that several processes append to, each after it has read what there is.

Everything here blocks. A lock on the file itself orders writers, and keeps readers from lines that
a writer may still take back; the system frees it when its holder dies. A torn last line is
nobody's: readers leave it, the next writer cuts it off. What the file holds counts, and not what
was read of it before: where these differ it is read from its start.
Source: docs/threads.md, "Projects and sections".
"""

import fcntl
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import anyio
import anyio.to_thread

from app_server.runtime.files.disk import lock_within, sync_folder
from app_server.threads.organization import FilingState
from protocol.log.filing import (
    FilingRecord,
    parse_filing_record,
)
from protocol.log.rollout import render_record

logger = logging.getLogger(__name__)

LOCK_WAIT_S = 5.0
"""For other processes; each holds the lock for one write, or one look."""


class LogLocked(OSError):
    """Other processes held the lock for too long."""

    def __init__(self) -> None:
        super().__init__("another process holds the lock of the log")
        self.strerror = str(self)


@dataclass(frozen=True, slots=True)
class NewLines:
    """The whole lines that were added since the last look."""

    lines: Sequence[bytes]
    is_all: bool = False
    """The file is not the one that was read before: these are all of its lines."""


class SharedLog:
    """One file, and how much of it has been read."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_to = 0
        self._last = b""
        """The last line that was read, or added."""
        self._left = b""
        """Bytes neither synced nor cut off: ignored unless others have appended to them."""

    def has_new(self) -> bool:
        """Whether the file is of another length than what was read; one stat, for the event loop.

        Raises:
            OSError: the file cannot be looked at.
        """
        try:
            return self._path.stat().st_size != self._read_to
        except FileNotFoundError:
            return self._read_to > 0

    def read_new(self) -> NewLines:
        """Return the whole lines that were added since the last look.

        Raises:
            LogLocked: another process held the lock for LOCK_WAIT_S.
            OSError: the file cannot be read.
        """
        try:
            with self._path.open("rb") as file:
                _lock(file.fileno(), fcntl.LOCK_SH)
                return self._read_new(file)
        except FileNotFoundError:
            was_there = self._read_to > 0
            self._read_to, self._last = 0, b""
            return NewLines([], is_all=was_there)

    def _read_new(self, file: BinaryIO) -> NewLines:
        file.seek(self._read_to - len(self._last))
        is_other = file.read(len(self._last)) != self._last
        if is_other:
            logger.warning("%s is not the file that was read before", self._path)
            self._read_to, self._last, self._left = 0, b"", b""
            file.seek(0)
        added = file.read()
        if added == self._left:
            return NewLines([], is_other)
        self._left = b""
        lines = added[: added.rfind(b"\n") + 1].splitlines(keepends=True)
        self._note(lines)
        return NewLines(lines, is_other)

    def _note(self, lines: Sequence[bytes]) -> None:
        self._read_to += sum(map(len, lines))
        self._last = lines[-1] if lines else self._last

    def append(self, decide: Callable[[NewLines], Sequence[bytes]]) -> None:
        """Add the lines that `decide` makes of those it has not seen; all of them, or none.

        They are on disk when this returns. What `decide` raises comes out.

        Raises:
            LogLocked: other processes held the lock for LOCK_WAIT_S.
            OSError: the disk refused; nothing was added.
        """
        with self._locked() as file:
            with open(file, "rb", closefd=False) as reader:
                added = self._read_new(reader)
            lines = decide(added)
            content = b"".join(lines)
            if os.fstat(file).st_size > self._read_to:
                logger.warning("cut a torn line off %s", self._path)
                os.ftruncate(file, self._read_to)
                self._left = b""
            try:
                written = 0
                while written < len(content):
                    written += os.write(file, content[written:])
                os.fsync(file)
            except OSError:
                self._take_back(file, content)
                raise
            self._note(lines)

    def _take_back(self, file: int, content: bytes) -> None:
        try:
            os.ftruncate(file, self._read_to)
        except OSError as exc:
            # Whoever could not write to the disk may be unable to cut, too: then the next one does.
            logger.warning("what was refused is left in %s: %s", self._path, exc.strerror)
            self._left = content[: os.fstat(file).st_size - self._read_to]

    @contextmanager
    def _locked(self) -> Iterator[int]:
        is_new = not self._path.exists()
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            if is_new:
                sync_folder(self._path.parent)
            _lock(file, fcntl.LOCK_EX)
            yield file
        finally:
            os.close(file)


def _lock(file: int, kind: int) -> None:
    if not lock_within(file, LOCK_WAIT_S, kind):
        raise LogLocked


class Filing:
    """The log of projects and sections, and what it adds up to."""

    def __init__(self, path: Path) -> None:
        self.state = FilingState()
        self._path = path
        self._log = SharedLog(path)
        self._problem: str | None = None
        """Why the log cannot be read; logged once."""
        self._turn = anyio.Lock()

    async def refresh(self) -> FilingState:
        """Take over what other servers have added.

        Raises:
            OSError: the log cannot be read, or another process held it for 5 s.
        """
        # While another task reads or writes, how far it has read is no sign of what `state` has.
        if not self._turn.locked() and not self._log.has_new():
            return self.state
        async with self._turn:
            with anyio.CancelScope(shield=True):
                new = await anyio.to_thread.run_sync(self._log.read_new)
            self.state = _after(self.state, new)
        return self.state

    async def latest(self) -> FilingState:
        """Do as `refresh`; while the log cannot be read, return what was read of it before."""
        try:
            state = await self.refresh()
        except OSError as exc:
            if exc.strerror != self._problem:
                self._problem = exc.strerror
                logger.warning("projects and sections (%s): %s", self._path, exc.strerror)
            return self.state
        self._problem = None
        return state

    async def change(
        self, decide: Callable[[FilingState], Sequence[FilingRecord]]
    ) -> Sequence[FilingRecord]:
        """Add what `decide` makes of the state; it is on disk when this returns.

        `decide` runs in a worker thread; what it raises comes out, and nothing was added. Returns
        what was added. Cancelling waits for a write that has begun.

        Raises:
            OSError: the disk refused, or other processes held the log for 5 s; nothing was added.
        """
        added: Sequence[FilingRecord] = ()
        state = self.state

        def append(new: NewLines) -> Sequence[bytes]:
            nonlocal added, state
            state = _after(state, new)
            added = decide(state)
            return [render_record(record) for record in added]

        async with self._turn:
            state = self.state
            try:
                with anyio.CancelScope(shield=True):
                    await anyio.to_thread.run_sync(self._log.append, append)
            finally:
                # What others had added counts also when ours was refused.
                self.state = state
            self.state = state.after(added)
        return added


def _after(state: FilingState, new: NewLines) -> FilingState:
    if not new.lines and not new.is_all:
        return state
    records = map(parse_filing_record, new.lines)
    before = FilingState() if new.is_all else state
    return before.after(record for record in records if record is not None)
