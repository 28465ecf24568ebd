"""The only door to stored threads.

Logs are written by LiveThread, one writer a thread; the index follows behind: rows of loaded
threads are rewritten in groups, at the latest before the next list. All disk work runs in worker
threads.
Source: docs/architecture.md, "Threads on disk".
"""

import logging
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from app_server.threads.index import ThreadIndex, ThreadPage, ThreadQuery, ThreadRow
from app_server.threads.live import LiveThread
from app_server.threads.rollout import LogBusy, RolloutWriter, WriterLock, read_rollout
from app_server.threads.state import NotARollout, ThreadState, begin, replay
from protocol.rollout import Record, ThreadCreated

logger = logging.getLogger(__name__)

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
        self._indexed = anyio.Event()
        self._behind: dict[str, ThreadState] = {}
        self._changed = anyio.Event()
        self._flushing = anyio.Lock()

    async def open(self) -> None:
        """Open the index and mend the rows that a crash left behind.

        Raises:
            OSError, sqlite3.Error: the home directory cannot be used.
        """
        index = await anyio.to_thread.run_sync(ThreadIndex, self._index_path)
        self._index = index
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
        while True:
            await self._changed.wait()
            self._changed = anyio.Event()
            await anyio.sleep(FLUSH_S)
            await self._flush()

    async def aclose(self) -> None:
        """Write what is behind and close the index."""
        with anyio.CancelScope(shield=True):
            await self._flush()
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
        return await anyio.to_thread.run_sync(self._load, thread_id)

    def _load(self, thread_id: str) -> LiveThread:
        path = self.path_of(thread_id)
        if not path.exists():
            raise ThreadNotFound(thread_id)
        writer = self._open_writer(thread_id)
        try:
            state = _read(path, thread_id)
            self._require_index().put([ThreadRow.of(state)], is_open=True)
        except BaseException:
            writer.close()
            raise
        return LiveThread(state, writer, self._note_change)

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
        """Read a thread without loading it.

        Raises:
            InvalidThreadId, ThreadNotFound, OSError
        """
        path = self.path_of(thread_id)
        return await anyio.to_thread.run_sync(_read, path, thread_id)

    async def change(self, thread_id: str, *records: Record) -> ThreadState:
        """Add records to a thread that is not loaded.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy, OSError
        """
        thread = await self.load(thread_id)
        try:
            await thread.append(*records)
        finally:
            await self.unload(thread)
        return thread.state

    async def list_page(self, query: ThreadQuery) -> ThreadPage:
        """Return one page of the index, with every change made before the call.

        Raises:
            InvalidCursor: see ThreadIndex.page.
        """
        await self._indexed.wait()
        await self._flush()
        return await anyio.to_thread.run_sync(self._require_index().page, query)

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
        try:
            lock = WriterLock(self._locks / f"{thread_id}.lock")
        except LogBusy as exc:
            raise ThreadBusy(exc.holder) from exc
        try:
            return RolloutWriter(path, lock)
        except BaseException:
            lock.release()
            raise

    def _note_change(self, state: ThreadState) -> None:
        self._behind[state.id] = state
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


def _read(path: Path, thread_id: str) -> ThreadState:
    try:
        return replay(read_rollout(path))
    except (FileNotFoundError, NotARollout):
        raise ThreadNotFound(thread_id) from None
