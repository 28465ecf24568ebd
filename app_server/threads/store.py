"""The only way to stored threads: no path, lock or database is in what it takes and returns.

Behind it are logs (`log`, `log_files`), which LiveThread writes, one writer a thread; the index of
all threads, which follows the logs (`index`); pages and searches (`history`); projects and sections
(`organization`); and what Codex keeps in the same home (`codex`). All disk work runs in worker
threads.
Source: docs/architecture.md, "Threads on disk".
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from weakref import WeakValueDictionary

import anyio
import anyio.to_thread

from app_server.threads.codex.copies import CodexCopies
from app_server.threads.codex.threads import CodexThreads
from app_server.threads.failures import (
    InvalidThreadId,
    ThreadBusy,
)
from app_server.threads.history.history import ThreadHistory
from app_server.threads.index.follower import IndexFollower
from app_server.threads.index.listing import Listing
from app_server.threads.log.file.writers import LogPaths, LogWriters
from app_server.threads.log.forking import ForkPoint
from app_server.threads.log.live import LiveThread
from app_server.threads.log.state.thread import ThreadState, begin
from app_server.threads.log_files import LogFiles
from app_server.threads.organization.organization import Organization
from protocol.log.rollout import Record, ThreadCreated

logger = logging.getLogger(__name__)


class ThreadStore:
    """All threads below one home directory."""

    def __init__(self, home: Path) -> None:
        """Name the home; nothing is opened yet."""
        index_path = home / "index" / "threads.sqlite3"
        self._paths = LogPaths(home / "threads")
        self._writers = LogWriters(home / "locks", self._paths)
        self._codex = CodexThreads(home, self._paths.exists)
        self._follower = IndexFollower(home, index_path, self._paths.path_of, self._writers)
        self._files = LogFiles(
            self._paths,
            self._writers,
            self._codex,
            lambda: self._follower.index,
            self._note_change,
        )
        self._lanes: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()
        self.lists = Listing(index_path, self._follower, self._codex)
        """Lists of all threads."""
        copies = CodexCopies(home / "index" / "codex", self._codex)
        self.history = ThreadHistory(home / "index", self._paths, self.lists, copies)
        """Pages of one thread, and searches over all."""
        self.organization = Organization(home / "filing.jsonl", self._follower)
        """The projects and sections that threads can be in."""

    @property
    def address(self) -> str | None:
        """Where clients find this process; the answer to others who want its threads names it."""
        return self._writers.address

    @address.setter
    def address(self, address: str | None) -> None:
        self._writers.address = address

    async def open(self) -> None:
        """Open the indexes and repair the rows that a crash left behind.

        Raises:
            OSError: the home directory cannot be used.
        """
        behind = await self._follower.open()
        await self.organization.refresh()
        logs_exist = self._paths.folder.exists()
        # What a crash left behind in the one index is behind in the other.
        await self.history.open(behind, logs_exist=logs_exist)
        await self._follower.begin(logs_exist=logs_exist)

    async def run(self) -> None:
        """Keep the indexes up to date until cancelled; make them first if they were missing."""
        await self._follower.make()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follower.keep_made)
            tasks.start_soon(self.history.keep_made)
            tasks.start_soon(self._follower.keep_repaired, self._note_repaired)
            while True:
                await self._follower.changed()
                await self._follower.flush()
                if not await self.history.follow():
                    self._follower.wake()

    def _note_repaired(self, thread_id: str) -> None:
        self.history.note_change(thread_id)
        self._follower.wake()

    def _note_change(self, state: ThreadState) -> None:
        self._follower.note_change(state)
        self.history.note_change(state.id)

    async def aclose(self) -> None:
        """Write what is behind and close the indexes."""
        with anyio.CancelScope(shield=True):
            await self._follower.flush()
            await self.history.aclose()
            self.lists.close()
            await self._follower.aclose()

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
        async with self._lane(state.id):
            return await anyio.to_thread.run_sync(self._files.create, state)

    async def load(self, thread_id: str) -> LiveThread:
        """Bring a stored thread into memory, to write it; one of Codex's is imported first.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadBusy, ThreadTooNew, ThreadDamaged, OSError
            ThreadArchived: Codex has archived it, and it is not imported.
        """
        async with self._lane(thread_id):
            thread = await self._open(thread_id)
        # What was imported is searched like all else here.
        self.history.note_change(thread_id)
        return thread

    async def _open(self, thread_id: str, *, archived_too: bool = False) -> LiveThread:
        load = partial(self._files.load, thread_id, archived_too=archived_too)
        return await anyio.to_thread.run_sync(load)

    def _lane(self, thread_id: str) -> anyio.Lock:
        """Held while a thread is opened, closed or removed: nothing of it meets in this process."""
        return self._lanes.setdefault(thread_id, anyio.Lock())

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
        async with self._lane(source_id):
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
            async with self._lane(thread_id), self._follower.flushing:
                await anyio.to_thread.run_sync(self._files.delete, thread_id)
                try:
                    await self.history.forget(thread_id)
                except OSError as exc:
                    # Nobody finds what is left there: no list has the thread.
                    logger.warning("the history of %s cannot be forgotten: %s", thread_id, exc)

    async def unload(self, thread: LiveThread) -> None:
        """Close a thread's log, with its final row in the index."""
        async with self._lane(thread.id):
            await self._close(thread)

    async def _close(self, thread: LiveThread) -> None:
        if thread.ephemeral:
            await thread.aclose()
            return
        with anyio.CancelScope(shield=True):
            await self._follower.close_thread(thread)

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
        async with self._lane(thread_id):
            holder = await anyio.to_thread.run_sync(self._writers.holder, thread_id)
        if holder is not None and thread_id not in self._writers.held:
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
        async with self._lane(thread_id):
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
