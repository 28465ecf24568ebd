"""Threads as files: what is done to the log of one thread. Everything here blocks.

The caller sees to it that what this process does to one thread takes turns.
Source: docs/architecture.md, "Threads on disk".
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app_server.runtime.files.disk import sync_folder
from app_server.threads.codex.importing import import_thread
from app_server.threads.codex.threads import CodexThreads, NoCodexThread
from app_server.threads.failures import (
    ThreadArchived,
    ThreadDamaged,
    ThreadExists,
    ThreadNotFound,
    ThreadOfCodex,
    log_failures,
)
from app_server.threads.index.derived import IndexReplaced
from app_server.threads.index.index import ThreadIndex
from app_server.threads.index.rows import ThreadRow
from app_server.threads.log.faults import LogFaults
from app_server.threads.log.file.writers import LogPaths, LogWriters
from app_server.threads.log.forking import ForkPoint, lines_in, ranges_to_copy, write_fork
from app_server.threads.log.live import LiveThread
from app_server.threads.log.loading import add_up, load_state, read_created
from app_server.threads.log.state.thread import ThreadState, begin
from protocol.log.rollout import ThreadCreated

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogFiles:
    """Logs of this program, and the rollouts of Codex that are imported when they are needed."""

    paths: LogPaths
    writers: LogWriters
    codex: CodexThreads
    index: Callable[[], ThreadIndex]
    changed: Callable[[ThreadState], None]
    """Called after every append to a thread that was opened here."""

    def create(self, state: ThreadState) -> LiveThread:
        """Begin a log; see ThreadStore.create."""
        # Before there is a file: it would hide a thread of Codex, even without a line.
        self._require_not_of_codex(state.created)
        writer = self.writers.open(state.id)
        try:
            # Behind the lock, so that of several who begin it one does.
            self._require_no_log(state.id)
        except BaseException:
            writer.close()
            raise
        try:
            writer.append([state.created], sync=True)
            self.index().put([ThreadRow.of(state)], is_open=True)
        except BaseException:
            # Nobody was told of it, so it does not exist.
            writer.path.unlink(missing_ok=True)
            writer.close()
            raise
        self.writers.held.add(state.id)
        return LiveThread(state, writer, self.changed)

    def require_new(self, state: ThreadState) -> None:
        """Refuse a thread that is there already.

        Raises:
            InvalidThreadId, ThreadExists
        """
        self._require_not_of_codex(state.created)
        self._require_no_log(state.id)

    def _require_not_of_codex(self, created: ThreadCreated) -> None:
        # An id that was made here is nobody else's.
        if created.request_digest is not None and self.codex.has(created.thread_id):
            raise ThreadExists(created.thread_id)

    def _require_no_log(self, thread_id: str) -> None:
        path = self.paths.path_of(thread_id)
        if path.exists() and path.stat().st_size > 0:
            raise ThreadExists(thread_id)

    def load(self, thread_id: str, *, archived_too: bool) -> LiveThread:
        """Open a log, which is imported if Codex alone has it; see ThreadStore.load."""
        path, faults = self.paths.path_of(thread_id), LogFaults()
        warnings: list[str] = []
        if not path.exists():
            warnings = self._import(thread_id, path, archived_too=archived_too)
        with log_failures(thread_id):
            # A log that is not known is not repaired either.
            read_created(path)
            # Another process may have removed it since.
            writer = self.writers.open(thread_id, must_exist=True)
        try:
            with log_failures(thread_id):
                state = load_state(path, faults)
            self.index().put([ThreadRow.of(state)], is_open=True)
        except BaseException:
            writer.close()
            raise
        faults.torn_bytes = writer.torn_bytes
        self.writers.held.add(thread_id)
        self.codex.forget_path(thread_id)
        warnings += faults.texts(path)
        for text in warnings:
            logger.warning("%s", text)
        return LiveThread(state, writer, self.changed, warnings)

    def _import(self, thread_id: str, path: Path, *, archived_too: bool) -> list[str]:
        """Copy a thread of Codex into a log of ours; returns what could not be read of it."""
        faults = LogFaults()
        try:
            source = self.codex.find(thread_id)
            if source.file.archived and not archived_too:
                raise ThreadArchived(thread_id)
            with self.writers.locked(thread_id):
                if not path.exists():
                    # A crash from here on leaves a row that is made again, whoever's it is then.
                    self.index().mark_open(thread_id)
                    self.codex.imported(thread_id, self.index())
                    import_thread(source, path, faults)
        except NoCodexThread:
            raise ThreadNotFound(thread_id) from None
        return faults.texts(source.file.path)

    def fork(self, source_id: str, point: ForkPoint, created: ThreadCreated) -> LiveThread:
        """Begin a log with a part of another one; see ThreadStore.fork."""
        source = self.paths.path_of(source_id)
        with log_failures(source_id):
            read_created(source)
            ranges = ranges_to_copy(source, point)
        if created.ephemeral:
            with log_failures(source_id):
                state = add_up(begin(created), lines_in(source, ranges), source)
            return LiveThread(state, None, lambda _: None)
        with log_failures(source_id):
            write_fork(source, ranges, created, self.paths.path_of(created.thread_id))
        return self.load(created.thread_id, archived_too=False)

    def delete(self, thread_id: str) -> None:
        """Remove a log and its row; see ThreadStore.delete."""
        path = self.paths.path_of(thread_id)
        index = self.index()
        if not path.exists():
            if self.codex.has(thread_id):
                raise ThreadOfCodex(thread_id)
            try:
                row = index.find(thread_id)
            except IndexReplaced:
                # Rows without a log are in none that is made again.
                row = None
            if row is None:
                raise ThreadNotFound(thread_id)
        else:
            # A first line that is damaged is none of a newer version.
            with suppress(ThreadDamaged, ThreadNotFound), log_failures(thread_id):
                read_created(path)
        with self.writers.locked(thread_id):
            index.mark_open(thread_id)
            if path.exists():
                path.unlink(missing_ok=True)
                sync_folder(path.parent)
            index.forget(thread_id)

    def read(self, thread_id: str) -> ThreadState:
        """Read a thread without what the model sees; see ThreadStore.read."""
        path = self.paths.path_of(thread_id)
        if not self.paths.exists(thread_id):
            try:
                return self.codex.read(thread_id)
            except NoCodexThread:
                raise ThreadNotFound(thread_id) from None
        with log_failures(thread_id):
            return load_state(path, with_history=False)
