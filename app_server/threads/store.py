"""The only door to stored threads.

Logs are written by LiveThread, one writer a thread; the index follows behind: rows of loaded
threads are rewritten in groups, at the latest before the next list. All disk work runs in worker
threads.
Source: docs/architecture.md, "Threads on disk".
"""

import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path

import anyio
import anyio.to_thread

from app_server.threads.codex.threads import CodexThreads, NoCodexThread
from app_server.threads.faults import LogFaults
from app_server.threads.importing import import_thread
from app_server.threads.index import ThreadIndex, ThreadPage, ThreadQuery, ThreadRow
from app_server.threads.live import LiveThread
from app_server.threads.locks import Holder, LockBusy, WriterLock, holder_of
from app_server.threads.making import mend, rebuild
from app_server.threads.rollout import LogTooNew, RolloutWriter, read_rollout
from app_server.threads.state import NotARollout, ThreadState, begin, replay
from protocol.rollout import Record, ThreadCreated

logger = logging.getLogger(__name__)

FLUSH_S = 0.5
"""How far the index may be behind for other processes; lists of ours are never behind."""

MEND_S = 5.0
"""How long after the death of another process lists may show its threads as it last told."""

WAIT_FOR_MAKER_S = 0.2
"""Between looks at an index that another process makes."""


class ThreadNotFound(Exception):
    """There is no such thread."""


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


class ThreadStore:
    """All threads below one home directory."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._logs = home / "threads"
        self._locks = home / "locks"
        self._index_path = home / "index" / "threads.sqlite3"
        self._codex = CodexThreads(home, self._has_log)
        self.address: str | None = None
        """Where clients find this process; the locks of its threads say so."""
        self._index: ThreadIndex | None = None
        self._indexed = anyio.Event()
        self._behind: dict[str, ThreadState] = {}
        self._closed: dict[str, ThreadState] = {}
        """Threads put away of which the index could not be told yet."""
        self._index_fails = False
        self._changed = anyio.Event()
        self._flushing = anyio.Lock()
        self._ours: set[str] = set()
        """Threads whose pen this process has."""

    async def open(self) -> None:
        """Open the index and mend the rows that a crash left behind.

        Raises:
            OSError: the home directory cannot be used.
        """
        index = await anyio.to_thread.run_sync(ThreadIndex, self._index_path)
        self._index = index
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
            tasks.start_soon(self._keep_mended)
            while True:
                await self._changed.wait()
                self._changed = anyio.Event()
                await anyio.sleep(FLUSH_S)
                await self._flush()

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

    async def _keep_mended(self) -> None:
        """Make rows of processes that died again, while this one lives."""
        while True:
            await anyio.sleep(MEND_S)
            try:
                await anyio.to_thread.run_sync(self._mend, self._require_index())
            except OSError as exc:
                logger.warning("the index cannot be mended: %s", exc)

    async def aclose(self) -> None:
        """Write what is behind and close the index."""
        with anyio.CancelScope(shield=True):
            await self._flush()
            if self._index is not None:
                await anyio.to_thread.run_sync(self._index.close)

    async def create(self, created: ThreadCreated) -> LiveThread:
        """Begin a thread; when this returns, it is on disk (unless it is ephemeral).

        Raises:
            OSError: the disk refused.
        """
        state = begin(created)
        if created.ephemeral:
            return LiveThread(state, None, lambda _: None)
        return await anyio.to_thread.run_sync(self._create, state)

    def _create(self, state: ThreadState) -> LiveThread:
        writer = self._open_writer(state.id)
        try:
            writer.append([state.created], sync=True)
            self._require_index().put([ThreadRow.of(state)], is_open=True)
        except BaseException:
            # Nobody hears of it, so it does not exist.
            self.path_of(state.id).unlink(missing_ok=True)
            writer.close()
            raise
        self._ours.add(state.id)
        return LiveThread(state, writer, self._note_change)

    async def load(self, thread_id: str) -> LiveThread:
        """Bring a stored thread into memory and take its pen; one of Codex's is imported first.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy, ThreadTooNew, OSError
            ThreadArchived: Codex has archived it, and it is not imported.
        """
        load = partial(self._load, thread_id, archived_too=False)
        return await anyio.to_thread.run_sync(load)

    def _load(self, thread_id: str, *, archived_too: bool) -> LiveThread:
        path, faults = self.path_of(thread_id), LogFaults()
        warnings: list[str] = []
        if not path.exists():
            warnings = self._import(thread_id, path, archived_too=archived_too)
        _require_known(path, thread_id)
        writer = self._open_writer(thread_id)
        try:
            state = _read(path, thread_id, faults)
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

    async def unload(self, thread: LiveThread) -> None:
        """Put a thread's pen down and its final row into the index."""
        await thread.aclose()
        if thread.state.created.ephemeral:
            return
        with anyio.CancelScope(shield=True):
            async with self._flushing:
                self._behind.pop(thread.id, None)
                self._ours.discard(thread.id)
                self._closed[thread.id] = thread.state
                await self._put_behind()

    async def read(self, thread_id: str) -> ThreadState:
        """Read a thread without loading it, one of ours or of Codex's.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadTooNew, OSError
        """
        path = self.path_of(thread_id)
        return await anyio.to_thread.run_sync(self._read, path, thread_id)

    def _read(self, path: Path, thread_id: str) -> ThreadState:
        try:
            return _read(path, thread_id)
        except ThreadNotFound:
            if path.exists():
                raise
        try:
            return self._codex.read(thread_id)
        except NoCodexThread:
            raise ThreadNotFound(thread_id) from None

    async def require_free(self, thread_id: str) -> None:
        """Look whether another process writes a thread that is not loaded here.

        Raises:
            ThreadBusy
        """
        try:
            self.path_of(thread_id)
        except InvalidThreadId:
            return
        holder = await anyio.to_thread.run_sync(_holder, self._locks / f"{thread_id}.lock")
        if holder is not None:
            raise ThreadBusy(holder)

    async def change(self, thread_id: str, *records: Record) -> ThreadState:
        """Add records to a thread that is not loaded; one of Codex's is imported first.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy, ThreadTooNew, OSError
        """
        load = partial(self._load, thread_id, archived_too=True)
        thread = await anyio.to_thread.run_sync(load)
        try:
            await thread.append(*records)
        finally:
            await self.unload(thread)
        return thread.state

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
        await self.indexed()
        await self._flush()
        return await anyio.to_thread.run_sync(self._page, query)

    def _find(self, thread_id: str) -> ThreadRow | None:
        index = self._require_index()
        self._look_at_codex(index)
        return index.find(thread_id)

    def _page(self, query: ThreadQuery) -> ThreadPage:
        index = self._require_index()
        self._look_at_codex(index)
        return index.page(query)

    def _look_at_codex(self, index: ThreadIndex) -> None:
        try:
            self._codex.look(index)
        except OSError as exc:
            logger.warning("threads of Codex are listed as they were: %s", exc)

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
        if parsed.version != 7:
            return self._logs / "other" / f"{thread_id}.jsonl"
        born = datetime.fromtimestamp((parsed.int >> 80) / 1000, UTC)
        return self._logs / f"{born:%Y/%m/%d}" / f"{thread_id}.jsonl"

    def _has_log(self, thread_id: str) -> bool:
        try:
            return self.path_of(thread_id).exists()
        except InvalidThreadId:
            return False

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

    def _open_writer(self, thread_id: str) -> RolloutWriter:
        path = self.path_of(thread_id)
        lock = self._take_lock(thread_id)
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
            await self._put_behind()

    async def _put_behind(self) -> None:
        """Tell the index what it does not know yet; what it cannot take now is tried again."""
        behind, self._behind = self._behind, {}
        closed, self._closed = self._closed, {}
        try:
            await self._put(behind, is_open=True)
            await self._put(closed, is_open=False)
        except OSError as exc:
            if not self._index_fails:
                logger.warning("the index is behind until it can be written: %s", exc)
            self._index_fails = True
            self._behind = {**behind, **self._behind}
            self._closed = {**closed, **self._closed}
            self._changed.set()
        else:
            self._index_fails = False

    async def _put(self, states: Mapping[str, ThreadState], *, is_open: bool) -> None:
        if states:
            rows = [ThreadRow.of(state) for state in states.values()]
            put = partial(self._require_index().put, rows, is_open=is_open)
            await anyio.to_thread.run_sync(put)

    def _require_index(self) -> ThreadIndex:
        assert self._index is not None, "open() comes first"
        return self._index

    def _mend(self, index: ThreadIndex) -> None:
        mend(index, self._locks, self.path_of, self._ours)

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


def _require_known(path: Path, thread_id: str) -> None:
    """Read the first line alone: a log that is not known is not mended either."""
    with _log_failures(thread_id):
        replay(islice(read_rollout(path), 1))


@contextmanager
def _log_failures(thread_id: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotARollout):
        raise ThreadNotFound(thread_id) from None
    except LogTooNew:
        raise ThreadTooNew(thread_id) from None


def _read(path: Path, thread_id: str, faults: LogFaults | None = None) -> ThreadState:
    with _log_failures(thread_id):
        return replay(read_rollout(path, faults))
