"""The store of threads in the files of a home.

Behind it are logs, which LiveThread writes, one writer a thread; the index of all threads, which
follows the logs (`index`); pages and searches (`history`); projects and sections
(`FileOrganization` here); and what Codex keeps in the same home (`codex`). All disk work runs in
worker threads.
Source: docs/architecture.md, "Threads on disk".
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread
from pydantic_core import to_json

from app_server.runtime.files.disk import sync_folder
from app_server.threads.failures import (
    InvalidThreadId,
    ThreadArchived,
    ThreadBusy,
    ThreadDamaged,
    ThreadExists,
    ThreadNotFound,
    ThreadOfCodex,
)
from app_server.threads.files.codex.copies import CodexCopies, import_thread
from app_server.threads.files.codex.threads import CodexThreads, NoCodexThread
from app_server.threads.files.filing import Filing
from app_server.threads.files.history.history import FileHistory
from app_server.threads.files.index.derived import IndexReplaced
from app_server.threads.files.index.follower import IndexFollower
from app_server.threads.files.index.index import ThreadIndex
from app_server.threads.files.index.listing import Listing
from app_server.threads.files.writers import FileLog, FileWriter, LogPaths, LogWriters, write_fork
from app_server.threads.log.faults import LogFaults, log_failures
from app_server.threads.log.live import LiveThread
from app_server.threads.log.reading import (
    ForkPoint,
    add_up,
    lines_in,
    load_state,
    ranges_to_copy,
    read_created,
)
from app_server.threads.log.state import ThreadState, begin
from app_server.threads.organization import NotInSection, Owner, rank_between
from app_server.threads.rows import ThreadRow
from protocol.log.rollout import Record, ThreadCreated


class FileOrganization(Filing):
    """The projects and sections that threads can be in; servers that share a home share them."""

    def __init__(self, path: Path, follower: IndexFollower) -> None:
        """`path` is the log of projects and sections."""
        super().__init__(path)
        self._follower = follower

    async def rank_in_section(self, section_id: str, moved: str, before: str | None) -> str:
        """Find a place for a thread in a section: before another one, or at the end.

        Raises:
            NotInSection: the other thread is not in this section.
        """
        low, high = await self._follower.ask(partial(_neighbours, section_id, moved, before))
        return rank_between(low, high)

    async def project_recency(self) -> Mapping[str, int]:
        """Return when an unarchived thread of each project was last active, in milliseconds."""
        return await self._follower.ask(_project_recency)

    async def owners(
        self, attachment: tuple[str, str], archived: bool | None, after: str, limit: int
    ) -> Sequence[Owner]:
        """Return threads with an attachment of this type and key, by id, from `after` on."""
        return await self._follower.ask(partial(_owners, attachment, archived, after, limit))


def _neighbours(
    section_id: str, moved: str, before: str | None, index: ThreadIndex
) -> tuple[str | None, str | None]:
    bound = ""
    values: list[Any] = [section_id, moved]
    high = None
    with index.reading() as database:
        if before is not None:
            found = database.execute(
                "SELECT section_rank FROM threads WHERE id = ? AND section_id = ?",
                (before, section_id),
            ).fetchone()
            if found is None:
                raise NotInSection(before)
            (high,) = found
            bound = " AND (section_rank, id) < (?, ?)"
            values.extend([high, before])
        (low,) = database.execute(
            f"SELECT max(section_rank) FROM threads WHERE section_id = ? AND id <> ?{bound}",
            values,
        ).fetchone()
    # Two processes may have given the same rank: the new one then goes behind both.
    return (low, high) if high is None or low is None or low < high else (low, None)


def _project_recency(index: ThreadIndex) -> Mapping[str, int]:
    with index.reading() as database:
        return dict(
            database.execute(
                "SELECT project_id, max(recency_at_ms) FROM threads "
                "WHERE project_id IS NOT NULL AND NOT archived AND has_content "
                "GROUP BY project_id"
            ).fetchall()
        )


def _owners(
    attachment: tuple[str, str], archived: bool | None, after: str, limit: int, index: ThreadIndex
) -> Sequence[Owner]:
    which = "" if archived is None else " AND archived = ?"
    values = [to_json(attachment).decode(), after, *([] if archived is None else [archived])]
    with index.reading() as database:
        found = database.execute(
            "SELECT id, archived FROM threads WHERE attachments <> '[]' AND EXISTS "
            "(SELECT 1 FROM json_each(attachments) AS each WHERE each.value = json(?)) "
            f"AND id > ?{which} ORDER BY id LIMIT ?",
            (*values, limit),
        ).fetchall()
    return [Owner(thread_id, bool(is_archived)) for thread_id, is_archived in found]


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LogFiles:
    """Logs of this program, and the rollouts of Codex that are imported when they are needed."""

    paths: LogPaths
    writers: LogWriters
    codex: CodexThreads
    follower: IndexFollower
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
            self.follower.index.put([ThreadRow.of(state)], is_open=True)
        except BaseException:
            # Nobody was told of it, so it does not exist.
            writer.path.unlink(missing_ok=True)
            writer.close()
            raise
        self.writers.held.add(state.id)
        return LiveThread(state, FileWriter(writer), self.changed)

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
            read_created(FileLog(path))
            # Another process may have removed it since.
            writer = self.writers.open(thread_id, must_exist=True)
        try:
            with log_failures(thread_id):
                state = load_state(FileLog(path), faults)
                if faults.torn_bytes:
                    writer.cut(faults.torn_bytes)
            self.follower.index.put([ThreadRow.of(state)], is_open=True)
        except BaseException:
            writer.close()
            raise
        faults.torn_bytes = writer.torn_bytes
        self.writers.held.add(thread_id)
        self.codex.forget_path(thread_id)
        warnings += faults.texts(path)
        for text in warnings:
            logger.warning("%s", text)
        return LiveThread(state, FileWriter(writer), self.changed, warnings)

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
                    self.follower.index.mark_open(thread_id)
                    self.codex.imported(thread_id, self.follower.index)
                    import_thread(source, path, faults)
        except NoCodexThread:
            raise ThreadNotFound(thread_id) from None
        return faults.texts(source.file.path)

    def fork(self, source_id: str, point: ForkPoint, created: ThreadCreated) -> LiveThread:
        """Begin a log with a part of another one; see ThreadStore.fork."""
        source = self.paths.path_of(source_id)
        with log_failures(source_id):
            read_created(FileLog(source))
            ranges = ranges_to_copy(FileLog(source), point)
        if created.ephemeral:
            with log_failures(source_id):
                state = add_up(begin(created), lines_in(FileLog(source), ranges), FileLog(source))
            return LiveThread(state, None, lambda _: None)
        with log_failures(source_id):
            write_fork(source, ranges, created, self.paths.path_of(created.thread_id))
        return self.load(created.thread_id, archived_too=False)

    def delete(self, thread_id: str) -> None:
        """Remove a log and its row; see ThreadStore.delete."""
        path = self.paths.path_of(thread_id)
        index = self.follower.index
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
                read_created(FileLog(path))
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
            return load_state(FileLog(path), with_history=False)


def filing_path(home: Path) -> Path:
    """Return where the projects and sections of a home are or would be."""
    return home / "filing.jsonl"


class FileStore:
    """All threads below one home directory."""

    def __init__(self, home: Path, address: str | None = None) -> None:
        """Name the home; nothing is opened yet.

        `address` is where clients find this process, for refusals of other processes.
        """
        index_path = home / "index" / "threads.sqlite3"
        self._paths = LogPaths(home / "threads")
        self._writers = LogWriters(home / "locks", self._paths, address)
        self._codex = CodexThreads(home, self._paths)
        self.follower = IndexFollower(home, index_path, self._paths, self._writers)
        """Keeps the index behind the logs."""
        self._files = LogFiles(
            self._paths,
            self._writers,
            self._codex,
            self.follower,
            self._note_change,
        )
        self._locks: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self.lists = Listing(index_path, self.follower, self._codex)
        """Lists of all threads."""
        copies = CodexCopies(home / "index" / "codex", self._codex)
        self.history = FileHistory(home / "index", self._paths, self.lists, copies)
        """Pages of one thread, and searches over all."""
        self.organization = FileOrganization(filing_path(home), self.follower)
        """The projects and sections that threads can be in."""

    @property
    def figures(self) -> Mapping[str, int]:
        """Return nothing: see ThreadStore.figures."""
        return {}

    async def open(self) -> None:
        """Open the indexes and repair the rows that a crash left behind.

        Raises:
            OSError: the home directory cannot be used.
        """
        behind = await self.follower.open()
        await self.organization.refresh()
        logs_exist = self._paths.folder.exists()
        # What a crash left behind in the one index is behind in the other.
        await self.history.open(behind, logs_exist=logs_exist)
        await self.follower.begin(logs_exist=logs_exist)

    async def run(self) -> None:
        """Keep the indexes up to date until cancelled; make them first if they were missing."""
        await self.follower.make()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.follower.keep_made)
            tasks.start_soon(self.history.keep_made)
            tasks.start_soon(self.follower.keep_repaired, self._note_repaired)
            while True:
                await self.follower.changed()
                await self.follower.flush()
                if not await self.history.follow():
                    self.follower.wake()

    def _note_repaired(self, thread_id: str) -> None:
        self.history.note_change(thread_id)
        self.follower.wake()

    def _note_change(self, state: ThreadState) -> None:
        self.follower.note_change(state)
        self.history.note_change(state.id)

    async def aclose(self) -> None:
        """Write what is behind and close the indexes."""
        with anyio.CancelScope(shield=True):
            await self.follower.flush()
            await self.history.aclose()
            self.lists.close()
            await self.follower.aclose()

    async def create(self, created: ThreadCreated) -> LiveThread:
        """Begin a thread; when this returns, it is on disk (unless it is ephemeral).

        Raises:
            InvalidThreadId: not a UUID in its usual form.
            ThreadExists: there is a log of this id; nothing was changed.
            ThreadBusy: another process is at work on it.
            OSError: the disk refused.
        """
        state = begin(created)
        if created.ephemeral:
            await anyio.to_thread.run_sync(self._files.require_new, state)
            return LiveThread(state, None, lambda _: None)
        async with self._lock(state.id):
            return await anyio.to_thread.run_sync(self._files.create, state)

    async def load(self, thread_id: str) -> LiveThread:
        """Bring a stored thread into memory, to write it; one of Codex's is imported first.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy, ThreadTooNew, ThreadDamaged, OSError
            ThreadArchived: Codex has archived it, and it is not imported.
        """
        async with self._lock(thread_id):
            thread = await self._open(thread_id)
        # What was imported is searched like all else here.
        self.history.note_change(thread_id)
        return thread

    async def _open(self, thread_id: str, *, archived_too: bool = False) -> LiveThread:
        load = partial(self._files.load, thread_id, archived_too=archived_too)
        return await anyio.to_thread.run_sync(load)

    def _lock(self, thread_id: str) -> anyio.Lock:
        """Held while a thread is opened, closed or removed: nothing of it meets in this process."""
        return self._locks.setdefault(thread_id, anyio.Lock())

    async def fork(self, source_id: str, point: ForkPoint, created: ThreadCreated) -> LiveThread:
        """Begin a thread with what another one's turns have written; load it.

        When this returns, it is on disk (unless it is ephemeral). The source need not be loaded;
        one of Codex's is imported first.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadArchived, ThreadTooNew, ThreadDamaged: of the
                source.
            TurnNotFound, TurnInProgress: see `ranges_to_copy`.
            OSError: the disk refused; there is no new thread.
        """
        async with self._lock(source_id):
            if not await anyio.to_thread.run_sync(self._paths.path_of(source_id).exists):
                await self._close(await self._open(source_id))
                self.history.note_change(source_id)
            thread = await anyio.to_thread.run_sync(self._files.fork, source_id, point, created)
        if not created.ephemeral:
            self._note_change(thread.state)
        return thread

    async def delete(self, thread_id: str) -> None:
        """Remove a thread that is not loaded, for good.

        A row of the index that has no log is removed too.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy, ThreadTooNew
            ThreadOfCodex: there is no log of ours that could be removed.
            OSError: the disk refused; the thread is still there.
        """
        with anyio.CancelScope(shield=True):
            async with self._lock(thread_id), self.follower.flushing:
                await anyio.to_thread.run_sync(self._files.delete, thread_id)
                try:
                    await self.history.forget(thread_id)
                except OSError as exc:
                    # Nobody finds what is left there: no list has the thread.
                    logger.warning("the history of %s cannot be forgotten: %s", thread_id, exc)

    async def unload(self, thread: LiveThread, *, goes_on: bool = False) -> None:
        """Close a thread's log, with its final row in the index; see ThreadStore.unload."""
        async with self._lock(thread.id):
            await self._close(thread)

    async def _close(self, thread: LiveThread) -> None:
        if thread.ephemeral:
            await thread.aclose()
            return
        with anyio.CancelScope(shield=True):
            await self.follower.close_thread(thread)

    async def read(self, thread_id: str) -> ThreadState:
        """Read a thread without loading it, and without what the model sees.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadTooNew, ThreadDamaged, OSError
        """
        return await anyio.to_thread.run_sync(self._files.read, thread_id)

    async def require_free(self, thread_id: str) -> None:
        """Look whether another process writes a thread that is not loaded here.

        Raises:
            ThreadBusy
        """
        try:
            self._paths.path_of(thread_id)
        except InvalidThreadId:
            return
        async with self._lock(thread_id):
            holder = await anyio.to_thread.run_sync(self._writers.holder, thread_id)
        if holder is not None and not self._writers.is_own(thread_id, holder):
            raise ThreadBusy(holder)

    async def change(
        self, thread_id: str, decide: Callable[[ThreadState], Sequence[Record]]
    ) -> tuple[ThreadState, Sequence[Record]]:
        """Add what `decide` makes of the state of a thread that is not loaded.

        One of Codex's is imported first, also if Codex has archived it.
        Returns the state after it, and what was added. What `decide` raises comes out.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy, ThreadTooNew, ThreadDamaged, OSError
        """
        async with self._lock(thread_id):
            thread = await self._open(thread_id, archived_too=True)
            try:
                added = await thread.change(decide)
            finally:
                await self._close(thread)
        return thread.state, added

    async def exists(self, thread_id: str) -> bool:
        """Whether a thread is stored; those in memory alone are not.

        Raises:
            InvalidThreadId: not a UUID in its usual form.
        """
        path = self._paths.path_of(thread_id)
        return await anyio.to_thread.run_sync(lambda: path.exists() or self._codex.has(thread_id))

    async def exported(self, thread_id: str, limit: int) -> bytes | None:
        """Return the lines of a thread's log, or of a rollout of Codex, for a report.

        None: they are more than `limit` bytes.

        Raises:
            InvalidThreadId, ThreadNotFound, OSError
        """
        path = Path(self.shown_path(thread_id))
        try:
            return await anyio.to_thread.run_sync(_read_whole, path, limit)
        except FileNotFoundError:
            raise ThreadNotFound(thread_id) from None

    def shown_path(self, thread_id: str) -> str:
        """Return what clients are shown as the file of a thread; no I/O.

        Raises:
            InvalidThreadId: not a UUID in its usual form.
        """
        return str(self._codex.path_of(thread_id) or self._paths.path_of(thread_id))

    def is_path_of(self, thread_id: str, path: str) -> bool:
        """Whether a path that a client names is the file of a thread; no I/O.

        Raises:
            InvalidThreadId: not a UUID in its usual form.
        """
        return Path(path) in (self._paths.path_of(thread_id), self._codex.path_of(thread_id))


def _read_whole(path: Path, limit: int) -> bytes | None:
    with path.open("rb") as file:
        content = file.read(limit + 1)
    return None if len(content) > limit else content
