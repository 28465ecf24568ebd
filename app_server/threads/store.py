"""The only door to stored threads.

Logs are written by LiveThread, one writer a thread; the index follows behind: rows of loaded
threads are rewritten in groups, at the latest before the next list. All disk work runs in worker
threads.
Source: docs/architecture.md, "Threads on disk".
"""

import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TypeVar
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread

from app_server.threads.filing import Filing
from app_server.threads.forking import ForkPoint, lines_in, ranges_to_copy, write_fork
from app_server.threads.history import ThreadHistory
from app_server.threads.index import Owner, ThreadIndex, ThreadPage, ThreadQuery, ThreadRow
from app_server.threads.live import LiveThread
from app_server.threads.loading import add_up, load_state
from app_server.threads.pages import HistoryReader
from app_server.threads.ranks import rank_between
from app_server.threads.rollout import LogBusy, RolloutWriter, WriterLock, sync_folder
from app_server.threads.search import SearchPage, SearchQuery
from app_server.threads.state import NotARollout, ThreadState, begin
from protocol.rollout import Record, ThreadCreated

logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")

REBUILD_STEP = 200
"""Rows a transaction while the index is made anew."""

LAST_DAY_MS = 253_402_214_400_000
"""The last day that a folder can be named after; an id may hold later times."""

FLUSH_S = 0.5
"""How far the index may be behind for other processes; lists of ours are never behind."""


class ThreadNotFound(Exception):
    """There is no such thread."""


class ThreadExists(Exception):
    """There is a thread of this id already."""


class InvalidThreadId(Exception):
    """What was given is not a UUID."""


class ThreadBusy(Exception):
    """Another process writes the thread; the text names it."""


class ThreadStore:
    """All threads below one home directory."""

    def __init__(self, home: Path) -> None:
        self._logs = home / "threads"
        self._locks = home / "locks"
        self._index_path = home / "index" / "threads.sqlite3"
        self._index: ThreadIndex | None = None
        self.filing = Filing(home / "filing.jsonl")
        """The projects and sections that threads can be in."""
        self._indexed = anyio.Event()
        self._history = ThreadHistory(home / "index", self._index_path, self.path_of)
        self._behind: dict[str, ThreadState] = {}
        self._changed = anyio.Event()
        self._flushing = anyio.Lock()
        self._orders: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    async def open(self) -> None:
        """Open the index and mend the rows that a crash left behind.

        Raises:
            OSError, sqlite3.Error: the home directory cannot be used.
        """
        index = await anyio.to_thread.run_sync(ThreadIndex, self._index_path)
        await self.filing.refresh()
        self._index = index
        # What a crash left behind in the one index is behind in the other.
        behind = await anyio.to_thread.run_sync(index.open_ids)
        await self._history.open(behind, logs_exist=self._logs.exists())
        if not index.is_new:
            await anyio.to_thread.run_sync(self._mend, index)
        elif self._logs.exists():
            return
        else:
            await anyio.to_thread.run_sync(index.mark_complete)
        self._indexed.set()

    async def run(self) -> None:
        """Keep the index up to date until cancelled; make it first if it was missing."""
        if not self._indexed.is_set():
            await anyio.to_thread.run_sync(self._rebuild, self._require_index())
            self._indexed.set()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._history.make, self._logs)
            while True:
                await self._changed.wait()
                self._changed = anyio.Event()
                await anyio.sleep(FLUSH_S)
                await self._flush()
                await self._history.catch_up()

    async def aclose(self) -> None:
        """Write what is behind and close the index."""
        with anyio.CancelScope(shield=True):
            await self._flush()
            await self._history.aclose()
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
            await anyio.to_thread.run_sync(self._require_new, state.id)
            return LiveThread(state, None, lambda _: None)
        return await anyio.to_thread.run_sync(self._create, state)

    def _create(self, state: ThreadState) -> LiveThread:
        writer = self._open_writer(state.id)
        try:
            # Behind the lock, so that of several who begin it one does.
            self._require_new(state.id)
            writer.append([state.created], sync=True)
            self._require_index().put([ThreadRow.of(state)], is_open=True)
        except BaseException:
            writer.close()
            raise
        return LiveThread(state, writer, self._note_change)

    def _require_new(self, thread_id: str) -> None:
        path = self.path_of(thread_id)
        if path.exists() and path.stat().st_size > 0:
            raise ThreadExists(thread_id)

    async def load(self, thread_id: str) -> LiveThread:
        """Bring a stored thread into memory and take its pen.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy, OSError
        """
        async with self._order(thread_id):
            return await anyio.to_thread.run_sync(self._load, thread_id)

    def _order(self, thread_id: str) -> anyio.Lock:
        """Held while a thread is opened, so that what this process does to it never meets."""
        return self._orders.setdefault(thread_id, anyio.Lock())

    def _load(self, thread_id: str) -> LiveThread:
        path = self.path_of(thread_id)
        if not path.exists():
            raise ThreadNotFound(thread_id)
        writer = self._open_writer(thread_id)
        try:
            state = _read(path, thread_id, with_history=True)
            self._require_index().put([ThreadRow.of(state)], is_open=True)
        except BaseException:
            writer.close()
            raise
        return LiveThread(state, writer, self._note_change)

    async def fork(self, source_id: str, point: ForkPoint, created: ThreadCreated) -> LiveThread:
        """Begin a thread with what another one's turns have written; load it.

        When this returns, it is on disk (unless it is ephemeral). The source need not be loaded.

        Raises:
            InvalidThreadId, ThreadNotFound: of the source.
            TurnNotFound, TurnInProgress: see `ranges_to_copy`.
            OSError: the disk refused; there is no new thread.
        """
        source = self.path_of(source_id)
        thread = await anyio.to_thread.run_sync(self._fork, source_id, source, point, created)
        if not created.ephemeral:
            self._note_change(thread.state)
        return thread

    def _fork(
        self, source_id: str, source: Path, point: ForkPoint, created: ThreadCreated
    ) -> LiveThread:
        try:
            ranges = ranges_to_copy(source, point)
        except FileNotFoundError:
            raise ThreadNotFound(source_id) from None
        if created.ephemeral:
            state = begin(created)
            add_up(state, lines_in(source, ranges), source)
            return LiveThread(state, None, lambda _: None)
        write_fork(source, ranges, created, self.path_of(created.thread_id))
        return self._load(created.thread_id)

    async def delete(self, thread_id: str) -> None:
        """Remove a thread that is not loaded, for good.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy
            OSError: the disk refused; the thread is still there.
        """
        path = self.path_of(thread_id)
        with anyio.CancelScope(shield=True):
            async with self._flushing:
                self._behind.pop(thread_id, None)
                await anyio.to_thread.run_sync(self._delete, thread_id, path)
                await self._history.forget(thread_id)

    def _delete(self, thread_id: str, path: Path) -> None:
        if not path.exists():
            raise ThreadNotFound(thread_id)
        lock = self._lock(thread_id)
        try:
            self._require_index().mark_open(thread_id)
            path.unlink(missing_ok=True)
            sync_folder(path.parent)
            self._require_index().forget(thread_id)
        finally:
            lock.release()

    async def unload(self, thread: LiveThread) -> None:
        """Put a thread's pen down and its final row into the index."""
        await thread.aclose()
        if thread.state.created.ephemeral:
            return
        with anyio.CancelScope(shield=True):
            async with self._flushing:
                self._behind.pop(thread.id, None)
                await self._put([ThreadRow.of(thread.state)], is_open=False)

    async def read(self, thread_id: str) -> ThreadState:
        """Read a thread without loading it, and without what the model sees.

        Raises:
            InvalidThreadId, ThreadNotFound, OSError
        """
        path = self.path_of(thread_id)
        return await anyio.to_thread.run_sync(_read, path, thread_id)

    async def ask(self, thread_id: str, question: Callable[[HistoryReader], Answer]) -> Answer:
        """Have a question about one thread's history answered in a worker thread.

        The thread need not be loaded; a loaded one is seen as its log is by now.

        Raises:
            InvalidThreadId, ThreadNotFound, OSError, and what `question` raises.
        """
        try:
            return await self._history.ask(thread_id, self.path_of(thread_id), question)
        except FileNotFoundError:
            raise ThreadNotFound(thread_id) from None

    async def change(self, thread_id: str, *records: Record) -> ThreadState:
        """Add records to a thread that is not loaded.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy, OSError
        """
        return await self.amend(thread_id, lambda _: records)

    async def amend(
        self, thread_id: str, plan: Callable[[ThreadState], Sequence[Record]]
    ) -> ThreadState:
        """Add the records that `plan` makes of the state to a thread that is not loaded.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy, OSError, and what `plan` raises
        """
        state, _ = await self.change_by(thread_id, plan)
        return state

    async def change_by(
        self, thread_id: str, decide: Callable[[ThreadState], Sequence[Record]]
    ) -> tuple[ThreadState, Sequence[Record]]:
        """Add what `decide` makes of the state of a thread that is not loaded.

        Returns the state after it, and what was added. What `decide` raises comes out.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy, OSError
        """
        async with self._order(thread_id):
            thread = await anyio.to_thread.run_sync(self._load, thread_id)
            try:
                added = await thread.change(decide)
            finally:
                await self.unload(thread)
        return thread.state, added

    async def exists(self, thread_id: str) -> bool:
        """Whether a thread is stored; those in memory alone are not.

        Raises:
            InvalidThreadId: see `path_of`.
        """
        return await anyio.to_thread.run_sync(self.path_of(thread_id).exists)

    async def find(self, thread_id: str) -> ThreadRow:
        """Return a thread's row without opening its log.

        Raises:
            ThreadNotFound
        """
        await self._indexed.wait()
        await self._flush()
        row = await anyio.to_thread.run_sync(self._require_index().find, thread_id)
        if row is None:
            raise ThreadNotFound(thread_id)
        return row

    async def list_page(self, query: ThreadQuery) -> ThreadPage:
        """Return one page of the index, with every change made before the call.

        Raises:
            InvalidCursor: see ThreadIndex.page.
        """
        await self._indexed.wait()
        await self._flush()
        return await anyio.to_thread.run_sync(self._require_index().page, query)

    async def search(self, query: SearchQuery) -> tuple[SearchPage, Mapping[str, ThreadRow]]:
        """Return one page of threads by what was said in them, up to the call; and their rows.

        Raises:
            InvalidCursor: see ThreadSearch.page.
        """
        await self._indexed.wait()
        await self._flush()
        page = await self._history.search(query)
        ids = [found.thread_id for found in page.found]
        return page, await anyio.to_thread.run_sync(self._require_index().rows_of, ids)

    async def rank_in_section(self, section_id: str, moved: str, before: str | None) -> str:
        """Find a place for a thread in a section: before another one, or at the end.

        Raises:
            NotInSection: the other thread is not in this section.
        """
        find = partial(self._require_index().neighbours, section_id, moved, before)
        await self._indexed.wait()
        await self._flush()
        low, high = await anyio.to_thread.run_sync(find)
        return rank_between(low, high)

    async def project_recency(self) -> Mapping[str, int]:
        """See ThreadIndex.project_recency."""
        await self._indexed.wait()
        await self._flush()
        return await anyio.to_thread.run_sync(self._require_index().project_recency)

    async def owners(
        self, attachment: tuple[str, str], archived: bool | None, after: str, limit: int
    ) -> Sequence[Owner]:
        """See ThreadIndex.owners."""
        find = partial(self._require_index().owners, attachment, archived, after, limit)
        await self._indexed.wait()
        await self._flush()
        return await anyio.to_thread.run_sync(find)

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

    def _open_writer(self, thread_id: str) -> RolloutWriter:
        path = self.path_of(thread_id)
        lock = self._lock(thread_id)
        try:
            return RolloutWriter(path, lock)
        except BaseException:
            lock.release()
            raise

    def _lock(self, thread_id: str) -> WriterLock:
        try:
            return WriterLock(self._locks / f"{thread_id}.lock")
        except LogBusy as exc:
            raise ThreadBusy(exc.holder) from exc

    def _note_change(self, state: ThreadState) -> None:
        self._behind[state.id] = state
        self._history.note_change(state.id)
        self._changed.set()

    async def _flush(self) -> None:
        async with self._flushing:
            behind, self._behind = self._behind, {}
            rows = [ThreadRow.of(state) for state in behind.values()]
            if rows:
                await self._put(rows, is_open=True)

    async def _put(self, rows: Sequence[ThreadRow], *, is_open: bool) -> None:
        put = partial(self._require_index().put, rows, is_open=is_open)
        await anyio.to_thread.run_sync(put)

    def _require_index(self) -> ThreadIndex:
        assert self._index is not None, "open() comes first"
        return self._index

    def _mend(self, index: ThreadIndex) -> None:
        for thread_id in index.open_ids():
            try:
                lock = WriterLock(self._locks / f"{thread_id}.lock")
            except LogBusy:
                continue
            try:
                state = _read(self.path_of(thread_id), thread_id)
                index.put([ThreadRow.of(state)], is_open=False)
            except (ThreadNotFound, OSError):
                index.forget(thread_id)
            finally:
                lock.release()

    def _rebuild(self, index: ThreadIndex) -> None:
        rows: list[ThreadRow] = []
        count = 0
        for path in self._logs.rglob("*.jsonl"):
            try:
                rows.append(ThreadRow.of(_read(path, path.stem)))
            except (ThreadNotFound, OSError):
                logger.warning("%s is not a thread", path)
            if len(rows) == REBUILD_STEP:
                index.add(rows)
                count += len(rows)
                logger.info("index: %d threads", count)
                rows.clear()
        index.add(rows)
        index.mark_complete()


def _read(path: Path, thread_id: str, *, with_history: bool = False) -> ThreadState:
    try:
        return load_state(path, with_history=with_history)
    except (FileNotFoundError, NotARollout):
        raise ThreadNotFound(thread_id) from None
