"""The only door to stored threads.

Logs are written by LiveThread, one writer a thread; the index follows behind: rows of loaded
threads are rewritten in groups, at the latest before the next list. All disk work runs in worker
threads.
Source: docs/architecture.md, "Threads on disk".
"""

import logging
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread

from app_server.threads.codex.copies import CodexCopies
from app_server.threads.codex.importing import import_thread
from app_server.threads.codex.threads import CodexThreads, NoCodexThread
from app_server.threads.history.history import ThreadHistory
from app_server.threads.history.pages import HistoryReader
from app_server.threads.history.search import SearchPage, SearchQuery
from app_server.threads.index.index import ThreadIndex
from app_server.threads.index.query import ThreadPage, ThreadQuery
from app_server.threads.index.rebuild import mend, rebuild
from app_server.threads.index.recent_pages import RecentPages
from app_server.threads.index.rows import ThreadRow
from app_server.threads.log.faults import LogFaults
from app_server.threads.log.folders import sync_folder
from app_server.threads.log.forking import ForkPoint, lines_in, ranges_to_copy, write_fork
from app_server.threads.log.live import LiveThread
from app_server.threads.log.loading import add_up, load_state, read_created
from app_server.threads.log.locks import Holder, LockBusy, WriterLock, holder_of
from app_server.threads.log.rollout import LogTooNew, RolloutWriter
from app_server.threads.log.state import FirstLineDamaged, NotARollout, ThreadState, begin
from app_server.threads.organization.filing import Filing
from app_server.threads.organization.fractional_index import rank_between
from app_server.threads.organization.placement import Owner, Placement
from protocol.rollout import ArchivedChanged, Record, ThreadCreated

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

LAST_DAY_MS = 253_402_214_400_000
"""The last day that a folder can be named after; an id may hold later times."""

FLUSH_S = 0.5
"""How far the index may be behind for other processes; lists of ours are never behind."""

MEND_S = 5.0
"""How long after the death of another process lists may show its threads as it last told."""

INDEX_WORKERS = 2
"""Threads for lists and what they wait for, so that these are not behind the writes of turns."""

WAIT_FOR_MAKER_S = 0.2
"""Between looks at an index that another process makes."""


class ThreadNotFound(Exception):
    """There is no such thread."""


class ThreadExists(Exception):
    """There is a thread of this id already."""


class InvalidThreadId(Exception):
    """What was given is not a UUID."""


class ThreadBusy(Exception):
    """Another process writes the thread; `holder` says which."""

    def __init__(self, holder: Holder) -> None:
        super().__init__(str(holder))
        self.holder = holder


class ThreadArchived(Exception):
    """The thread must be brought back from the archive before it is loaded."""


class ThreadTooNew(Exception):
    """A newer version of this server wrote the thread."""


class ThreadDamaged(Exception):
    """The first line of the thread's log makes no sense, so nothing can be told of it."""


class ThreadOfCodex(Exception):
    """The thread is Codex's alone, whose files are never altered."""


class ThreadStore:
    """All threads below one home directory."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._logs = home / "threads"
        self._locks = home / "locks"
        self._index_path = home / "index" / "threads.sqlite3"
        self._codex = CodexThreads(home, self._has_log)
        self._copies = CodexCopies(home / "index" / "codex", self._codex)
        self.address: str | None = None
        """Where clients find this process; the locks of its threads say so."""
        self._index: ThreadIndex | None = None
        self._recent = RecentPages(self._index_path)
        self._index_workers = anyio.CapacityLimiter(INDEX_WORKERS)
        self.filing = Filing(home / "filing.jsonl")
        """The projects and sections that threads can be in."""
        self._indexed = anyio.Event()
        self._history = ThreadHistory(home / "index", self._index_path, self.path_of)
        self._behind: dict[str, ThreadState] = {}
        self._left_open = False
        """Whether the index could not be told that a thread was put away."""
        self._index_fails = False
        self._history_fails = False
        self._changed = anyio.Event()
        self._flushing = anyio.Lock()
        self._ours: set[str] = set()
        """Threads whose pen this process has."""
        self._lanes: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    async def open(self) -> None:
        """Open the index and mend the rows that a crash left behind.

        Raises:
            OSError: the home directory cannot be used.
        """
        index = await anyio.to_thread.run_sync(ThreadIndex, self._index_path)
        await self.filing.refresh()
        self._index = index
        # What a crash left behind in the one index is behind in the other.
        behind = await anyio.to_thread.run_sync(index.open_ids)
        await self._history.open(behind, logs_exist=self._logs.exists())
        if not index.is_new:
            await anyio.to_thread.run_sync(self._mend, index)
        elif index.is_made_elsewhere or self._logs.exists():
            return
        else:
            await anyio.to_thread.run_sync(index.mark_complete)
        self._indexed.set()

    async def run(self) -> None:
        """Keep the index up to date until cancelled; make it first if it was missing."""
        if not self._indexed.is_set():
            await self._make_index(self._require_index())
            self._indexed.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._make_history)
            tasks.start_soon(self._keep_mended)
            while True:
                await self._changed.wait()
                self._changed = anyio.Event()
                await anyio.sleep(FLUSH_S)
                await self._flush()
                await self._follow()

    async def _make_index(self, index: ThreadIndex) -> None:
        while index.is_new:
            try:
                if index.is_made_elsewhere:
                    await anyio.sleep(WAIT_FOR_MAKER_S)
                    await anyio.to_thread.run_sync(index.look_again)
                else:
                    await anyio.to_thread.run_sync(self._rebuild, index)
            except OSError as exc:
                logger.warning("the index cannot be made, and is tried again: %s", exc)
                await anyio.sleep(MEND_S)

    async def _make_history(self) -> None:
        while True:
            try:
                await self._history.make(self._logs)
            except OSError as exc:
                logger.warning("the history cannot be indexed, and is tried again: %s", exc)
                await anyio.sleep(MEND_S)
            else:
                return

    async def _keep_mended(self) -> None:
        """Make rows of processes that died again, while this one lives."""
        while True:
            await anyio.sleep(MEND_S)
            try:
                mended = await anyio.to_thread.run_sync(self._mend, self._require_index())
            except OSError as exc:
                logger.warning("the index cannot be mended: %s", exc)
                continue
            for thread_id in mended:
                self._history.note_change(thread_id)
                self._changed.set()

    async def _follow(self) -> None:
        """Let the history index catch up; what it cannot take now is tried again."""
        try:
            await self._history.catch_up()
        except OSError as exc:
            if not self._history_fails:
                logger.warning("the history is behind until it can be written: %s", exc)
            self._history_fails = True
            self._changed.set()
        else:
            self._history_fails = False

    async def aclose(self) -> None:
        """Write what is behind and close the index."""
        with anyio.CancelScope(shield=True):
            await self._flush()
            await self._history.aclose()
            self._recent.close()
            if self._index is not None:
                await anyio.to_thread.run_sync(self._index.close)

    async def create(self, created: ThreadCreated) -> LiveThread:
        """Begin a thread; when this returns, it is on disk (unless it is ephemeral).

        Raises:
            InvalidThreadId: see `path_of`.
            ThreadExists: there is a log of this id; nothing was changed.
            ThreadBusy: another process is at work on it.
            OSError: the disk refused.
        """
        state = begin(created)
        if created.ephemeral:
            await anyio.to_thread.run_sync(self._require_new, state)
            return LiveThread(state, None, lambda _: None)
        async with self._lane(state.id):
            return await anyio.to_thread.run_sync(self._create, state)

    def _create(self, state: ThreadState) -> LiveThread:
        # Before there is a file: it would hide a thread of Codex, even without a line.
        self._require_not_of_codex(state.created)
        writer = self._open_writer(state.id)
        try:
            # Behind the lock, so that of several who begin it one does.
            self._require_no_log(state.id)
        except BaseException:
            writer.close()
            raise
        try:
            writer.append([state.created], sync=True)
            self._require_index().put([ThreadRow.of(state)], is_open=True)
        except BaseException:
            # Nobody hears of it, so it does not exist.
            writer.path.unlink(missing_ok=True)
            writer.close()
            raise
        self._ours.add(state.id)
        return LiveThread(state, writer, self._note_change)

    def _require_new(self, state: ThreadState) -> None:
        self._require_not_of_codex(state.created)
        self._require_no_log(state.id)

    def _require_not_of_codex(self, created: ThreadCreated) -> None:
        # An id that was made here is nobody else's.
        if created.request_digest is not None and self._codex.has(created.thread_id):
            raise ThreadExists(created.thread_id)

    def _require_no_log(self, thread_id: str) -> None:
        path = self.path_of(thread_id)
        if path.exists() and path.stat().st_size > 0:
            raise ThreadExists(thread_id)

    async def load(self, thread_id: str) -> LiveThread:
        """Bring a stored thread into memory and take its pen; one of Codex's is imported first.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy, ThreadTooNew, ThreadDamaged, OSError
            ThreadArchived: Codex has archived it, and it is not imported.
        """
        load = partial(self._load, thread_id, archived_too=False)
        async with self._lane(thread_id):
            thread = await anyio.to_thread.run_sync(load)
        # What was imported is searched like all else here.
        self._history.note_change(thread_id)
        return thread

    def _lane(self, thread_id: str) -> anyio.Lock:
        """Held while a thread is opened, closed or removed: nothing of it meets in this process."""
        return self._lanes.setdefault(thread_id, anyio.Lock())

    def _load(self, thread_id: str, *, archived_too: bool) -> LiveThread:
        path, faults = self.path_of(thread_id), LogFaults()
        warnings: list[str] = []
        if not path.exists():
            warnings = self._import(thread_id, path, archived_too=archived_too)
        with _log_failures(thread_id):
            # A log that is not known is not mended either.
            read_created(path)
            # Another process may have removed it since.
            writer = self._open_writer(thread_id, must_exist=True)
        try:
            with _log_failures(thread_id):
                state = load_state(path, faults)
            self._require_index().put([ThreadRow.of(state)], is_open=True)
        except BaseException:
            writer.close()
            raise
        faults.torn_bytes = writer.torn_bytes
        self._ours.add(thread_id)
        warnings += faults.texts(path)
        for text in warnings:
            logger.warning("%s", text)
        return LiveThread(state, writer, self._note_change, warnings)

    def _import(self, thread_id: str, path: Path, *, archived_too: bool) -> list[str]:
        """Copy a thread of Codex into a log of ours; returns what could not be read of it."""
        faults = LogFaults()
        try:
            source = self._codex.find(thread_id)
            if source.file.archived and not archived_too:
                raise ThreadArchived(thread_id)
            with self._locked(thread_id):
                if not path.exists():
                    # A crash from here on leaves a row that is made again, whoever's it is then.
                    self._require_index().mark_open(thread_id)
                    self._codex.imported(thread_id, self._require_index())
                    import_thread(source, path, faults)
        except NoCodexThread:
            raise ThreadNotFound(thread_id) from None
        return faults.texts(source.file.path)

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
        source = self.path_of(source_id)
        async with self._lane(source_id):
            if not await anyio.to_thread.run_sync(source.exists):
                load = partial(self._load, source_id, archived_too=False)
                await self._close(await anyio.to_thread.run_sync(load))
                self._history.note_change(source_id)
            thread = await anyio.to_thread.run_sync(self._fork, source_id, source, point, created)
        if not created.ephemeral:
            self._note_change(thread.state)
        return thread

    def _fork(
        self, source_id: str, source: Path, point: ForkPoint, created: ThreadCreated
    ) -> LiveThread:
        with _log_failures(source_id):
            read_created(source)
            ranges = ranges_to_copy(source, point)
        if created.ephemeral:
            with _log_failures(source_id):
                state = add_up(begin(created), lines_in(source, ranges), source)
            return LiveThread(state, None, lambda _: None)
        with _log_failures(source_id):
            write_fork(source, ranges, created, self.path_of(created.thread_id))
        return self._load(created.thread_id, archived_too=False)

    async def delete(self, thread_id: str) -> None:
        """Remove a thread that is not loaded, for good.

        A row of the index that has no log is removed too.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy, ThreadTooNew
            ThreadOfCodex: there is no log of ours that could be removed.
            OSError: the disk refused; the thread is still there.
        """
        path = self.path_of(thread_id)
        with anyio.CancelScope(shield=True):
            async with self._lane(thread_id), self._flushing:
                await anyio.to_thread.run_sync(self._delete, thread_id, path)
                try:
                    await self._history.forget(thread_id)
                except OSError as exc:
                    # Nobody finds what is left there: no list has the thread.
                    logger.warning("the history of %s cannot be forgotten: %s", thread_id, exc)

    def _delete(self, thread_id: str, path: Path) -> None:
        index = self._require_index()
        if not path.exists():
            if self._codex.has(thread_id):
                raise ThreadOfCodex(thread_id)
            if index.lists.find(thread_id) is None:
                raise ThreadNotFound(thread_id)
        else:
            _require_not_newer(path, thread_id)
        with self._locked(thread_id):
            index.mark_open(thread_id)
            if path.exists():
                path.unlink(missing_ok=True)
                sync_folder(path.parent)
            index.forget(thread_id)

    async def unload(self, thread: LiveThread) -> None:
        """Close a thread's log, with its final row in the index."""
        async with self._lane(thread.id):
            await self._close(thread)

    async def _close(self, thread: LiveThread) -> None:
        if thread.ephemeral:
            await thread.aclose()
            return
        with anyio.CancelScope(shield=True):
            async with self._flushing:
                try:
                    await thread.aclose(self._put_last)
                finally:
                    self._behind.pop(thread.id, None)
                    self._ours.discard(thread.id)
                if self._left_open:
                    self._changed.set()

    def _put_last(self, state: ThreadState) -> None:
        # Before the lock is free: whoever has it next may remove the thread.
        try:
            self._require_index().put([ThreadRow.of(state)], is_open=False)
        except OSError as exc:
            # The row stays open, and is made from the log when the index can be written.
            logger.warning("the row of %s waits until it can be written: %s", state.id, exc)
            self._left_open = True

    async def read(self, thread_id: str) -> ThreadState:
        """Read a thread without loading it, and without what the model sees.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadTooNew, ThreadDamaged, OSError
        """
        path = self.path_of(thread_id)
        return await anyio.to_thread.run_sync(self._read, path, thread_id)

    def _read(self, path: Path, thread_id: str) -> ThreadState:
        if not self._has_log(thread_id):
            try:
                return self._codex.read(thread_id)
            except NoCodexThread:
                raise ThreadNotFound(thread_id) from None
        with _log_failures(thread_id):
            return load_state(path, with_history=False)

    async def require_free(self, thread_id: str) -> None:
        """Look whether another process writes a thread that is not loaded here.

        Raises:
            ThreadBusy
        """
        try:
            self.path_of(thread_id)
        except InvalidThreadId:
            return
        async with self._lane(thread_id):
            holder = await anyio.to_thread.run_sync(_holder, self._locks / f"{thread_id}.lock")
        if holder is not None and thread_id not in self._ours:
            raise ThreadBusy(holder)

    async def ask(self, thread_id: str, question: Callable[[HistoryReader], Answer]) -> Answer:
        """Have a question about one thread's history answered in a worker thread.

        The thread need not be loaded; a loaded one is seen as its log is by now. One of Codex's is
        seen as an import would make it.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadTooNew, ThreadDamaged, OSError
            And what `question` raises.
        """
        path = self.path_of(thread_id)
        try:
            path = await anyio.to_thread.run_sync(self._log_to_ask, thread_id, path)
            return await self._history.ask(thread_id, path, question)
        except (FileNotFoundError, NoCodexThread):
            raise ThreadNotFound(thread_id) from None

    def _log_to_ask(self, thread_id: str, path: Path) -> Path:
        if not path.exists():
            return self._copies.path_of(thread_id)
        with _log_failures(thread_id):
            read_created(path)
        return path

    async def change(self, thread_id: str, *records: Record) -> ThreadState:
        """Add records to a thread that is not loaded.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy, ThreadTooNew, ThreadDamaged, OSError
            ThreadNotFound: also if it is to be archived and is so already.
        """
        archives = any(isinstance(one, ArchivedChanged) and one.archived for one in records)

        def plan(state: ThreadState) -> Sequence[Record]:
            if archives and state.archived:
                raise ThreadNotFound(thread_id)
            return records

        return await self.amend(thread_id, plan)

    async def amend(
        self, thread_id: str, plan: Callable[[ThreadState], Sequence[Record]]
    ) -> ThreadState:
        """Add the records that `plan` makes of the state to a thread that is not loaded.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy, ThreadTooNew, ThreadDamaged, OSError
            And what `plan` raises.
        """
        state, _ = await self.change_by(thread_id, plan)
        return state

    async def change_by(
        self, thread_id: str, decide: Callable[[ThreadState], Sequence[Record]]
    ) -> tuple[ThreadState, Sequence[Record]]:
        """Add what `decide` makes of the state of a thread that is not loaded.

        One of Codex's is imported first, also if Codex has archived it.
        Returns the state after it, and what was added. What `decide` raises comes out.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy, ThreadTooNew, ThreadDamaged, OSError
        """
        load = partial(self._load, thread_id, archived_too=True)
        async with self._lane(thread_id):
            thread = await anyio.to_thread.run_sync(load)
            try:
                added = await thread.change(decide)
            finally:
                await self._close(thread)
        return thread.state, added

    async def exists(self, thread_id: str) -> bool:
        """Whether a thread is stored; those in memory alone are not.

        Raises:
            InvalidThreadId: see `path_of`.
        """
        path = self.path_of(thread_id)
        return await anyio.to_thread.run_sync(lambda: path.exists() or self._codex.has(thread_id))

    async def indexed(self) -> None:
        """Wait until every thread is in the index."""
        await self._indexed.wait()

    async def find(self, thread_id: str) -> ThreadRow:
        """Return a thread's row without opening its log.

        Raises:
            ThreadNotFound
        """
        await self.indexed()
        await self._flush()
        row = await anyio.to_thread.run_sync(self._find, thread_id)
        if row is None:
            raise ThreadNotFound(thread_id)
        return row

    async def list_page(self, query: ThreadQuery) -> ThreadPage:
        """Return one page of the index, with every change made before the call.

        Raises:
            InvalidCursor: see ThreadIndex.page.
        """
        if not self._indexed.is_set():
            await self.indexed()
        if self._is_behind:
            await self._flush()
        if self._codex.is_looked_at() and (page := self._recent.find(query)) is not None:
            return page
        version = self._recent.version()
        page = await anyio.to_thread.run_sync(self._page, query, limiter=self._index_workers)
        self._recent.keep(query, page, version)
        return page

    def _find(self, thread_id: str) -> ThreadRow | None:
        index = self._require_index()
        self._look_at_codex(index)
        return index.lists.find(thread_id)

    def _page(self, query: ThreadQuery) -> ThreadPage:
        index = self._require_index()
        self._look_at_codex(index)
        return index.lists.page(query)

    def _look_at_codex(self, index: ThreadIndex) -> None:
        try:
            self._codex.look(index)
        except OSError as exc:
            logger.warning("threads of Codex are listed as they were: %s", exc)

    async def search(self, query: SearchQuery) -> tuple[SearchPage, Mapping[str, ThreadRow]]:
        """Return one page of threads by what was said in them, up to the call; and their rows.

        Raises:
            InvalidCursor: see ThreadSearch.page.
        """
        await self.indexed()
        await self._flush()
        await anyio.to_thread.run_sync(self._look_at_codex, self._require_index())
        await self._history.take_in_copies(self._copies)
        page = await self._history.search(query)
        ids = [found.thread_id for found in page.found]
        return page, await anyio.to_thread.run_sync(self._require_index().lists.rows_of, ids)

    async def rank_in_section(self, section_id: str, moved: str, before: str | None) -> str:
        """Find a place for a thread in a section: before another one, or at the end.

        Raises:
            NotInSection: the other thread is not in this section.
        """
        find = partial(Placement(self._require_index()).neighbours, section_id, moved, before)
        await self.indexed()
        await self._flush()
        low, high = await anyio.to_thread.run_sync(find)
        return rank_between(low, high)

    async def project_recency(self) -> Mapping[str, int]:
        """See ThreadIndex.project_recency."""
        await self.indexed()
        await self._flush()
        return await anyio.to_thread.run_sync(Placement(self._require_index()).project_recency)

    async def owners(
        self, attachment: tuple[str, str], archived: bool | None, after: str, limit: int
    ) -> Sequence[Owner]:
        """See ThreadIndex.owners."""
        find = partial(Placement(self._require_index()).owners, attachment, archived, after, limit)
        await self.indexed()
        await self._flush()
        return await anyio.to_thread.run_sync(find)

    def path_shown(self, thread_id: str) -> Path:
        """Return the log of a thread that a list gave, which may be one of Codex's; no I/O.

        Raises:
            InvalidThreadId: see `path_of`.
        """
        return self._codex.path_of(thread_id) or self.path_of(thread_id)

    def path_of(self, thread_id: str) -> Path:
        """Return where a thread's log is or would be.

        Raises:
            InvalidThreadId: not a UUID in its usual form.
        """
        try:
            parsed = uuid.UUID(thread_id)
        except ValueError:
            raise InvalidThreadId(thread_id) from None
        if str(parsed) != thread_id:
            raise InvalidThreadId(thread_id)
        born_ms = parsed.int >> 80
        if parsed.version != 7 or born_ms > LAST_DAY_MS:
            return self._logs / "other" / f"{thread_id}.jsonl"
        born = datetime.fromtimestamp(born_ms / 1000, UTC)
        return self._logs / f"{born:%Y/%m/%d}" / f"{thread_id}.jsonl"

    def _has_log(self, thread_id: str) -> bool:
        try:
            return self.path_of(thread_id).exists()
        except InvalidThreadId:
            return False

    def _open_writer(self, thread_id: str, *, must_exist: bool = False) -> RolloutWriter:
        path = self.path_of(thread_id)
        lock = self._take_lock(thread_id)
        try:
            return RolloutWriter(path, lock, must_exist=must_exist)
        except BaseException:
            lock.release()
            raise

    def _take_lock(self, thread_id: str) -> WriterLock:
        try:
            return WriterLock(self._locks / f"{thread_id}.lock", self.address)
        except LockBusy as exc:
            raise ThreadBusy(exc.holder) from exc

    @contextmanager
    def _locked(self, thread_id: str) -> Iterator[None]:
        lock = self._take_lock(thread_id)
        try:
            yield
        finally:
            lock.release()

    def _note_change(self, state: ThreadState) -> None:
        self._behind[state.id] = state
        self._history.note_change(state.id)
        self._changed.set()

    @property
    def _is_behind(self) -> bool:
        return bool(self._behind) or self._left_open or self._flushing.locked()

    async def _flush(self) -> None:
        async with self._flushing:
            await self._put_behind()

    async def _put_behind(self) -> None:
        """Tell the index what it does not know yet; what it cannot take now is tried again."""
        behind, self._behind = self._behind, {}
        left_open, self._left_open = self._left_open, False
        try:
            await self._put(behind)
            if left_open:
                await anyio.to_thread.run_sync(self._mend, self._require_index())
        except OSError as exc:
            if not self._index_fails:
                logger.warning("the index is behind until it can be written: %s", exc)
            self._index_fails = True
            self._behind = {**behind, **self._behind}
            self._left_open = left_open
            self._changed.set()
        else:
            self._index_fails = False

    async def _put(self, states: Mapping[str, ThreadState]) -> None:
        if states:
            rows = [ThreadRow.of(state) for state in states.values()]
            put = partial(self._require_index().put, rows, is_open=True)
            await anyio.to_thread.run_sync(put, limiter=self._index_workers)

    def _require_index(self) -> ThreadIndex:
        assert self._index is not None, "open() comes first"
        return self._index

    def _mend(self, index: ThreadIndex) -> list[str]:
        return mend(index, self._locks, self.path_of, self._ours)

    def _rebuild(self, index: ThreadIndex) -> None:
        logger.info("the index is made from the logs; lists wait for it")
        began = time.monotonic()
        count = rebuild(index, self._home)
        logger.info("index: %d threads in %.1f s", count, time.monotonic() - began)
        self._mend(index)


def _holder(path: Path) -> Holder | None:
    try:
        return holder_of(path)
    except OSError:
        return None


def _require_not_newer(path: Path, thread_id: str) -> None:
    """Look at the first line alone; one that is damaged is none of a newer version."""
    try:
        read_created(path)
    except NotARollout:
        return
    except LogTooNew:
        raise ThreadTooNew(thread_id) from None


@contextmanager
def _log_failures(thread_id: str) -> Iterator[None]:
    try:
        yield
    except FirstLineDamaged:
        raise ThreadDamaged(thread_id) from None
    except (FileNotFoundError, NotARollout):
        raise ThreadNotFound(thread_id) from None
    except LogTooNew:
        raise ThreadTooNew(thread_id) from None
