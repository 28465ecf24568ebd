"""The index follows the logs: rows of threads that changed are written in groups.

It is behind for other processes by FLUSH_S at most; lists of this process flush it first, and are
never behind. All disk work runs in worker threads.
Source: docs/architecture.md, "Threads on disk".
"""

import logging
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio
import anyio.to_thread

from app_server.threads.index.index import ThreadIndex
from app_server.threads.index.rebuild import rebuild, repair_rows
from app_server.threads.index.rows import ThreadRow
from app_server.threads.log.file.writers import LogWriters
from app_server.threads.log.live import LiveThread
from app_server.threads.log.state.thread import ThreadState

logger = logging.getLogger(__name__)

FLUSH_S = 0.5
"""How far the index may be behind for other processes; lists of ours are never behind."""

REPAIR_S = 5.0
"""How long after the death of another process lists may show its threads as it last wrote them."""

INDEX_WORKERS = 2
"""Threads for lists and what they wait for, so that these are not behind the writes of turns."""

WAIT_FOR_MAKER_S = 0.2
"""Between looks at an index that another process makes."""


class IndexFollower:
    """One index, and the threads whose rows are not up to date."""

    def __init__(
        self, home: Path, path: Path, path_of: Callable[[str], Path], writers: LogWriters
    ) -> None:
        """`path` is the file of the index; `path_of` says where the log of a thread is."""
        self._home = home
        self._path = path
        self._path_of = path_of
        self._writers = writers
        self._index: ThreadIndex | None = None
        self._is_complete = anyio.Event()
        self._behind: dict[str, ThreadState] = {}
        self._left_open = False
        """Whether a thread was closed and its last row could not be written."""
        self._fails = False
        self._changed = anyio.Event()
        self.workers = anyio.CapacityLimiter(INDEX_WORKERS)
        self.flushing = anyio.Lock()
        """Held while rows are written: a thread that is closed or removed keeps no older row."""

    @property
    def index(self) -> ThreadIndex:
        """The index, which `open` opened."""
        assert self._index is not None, "open() comes first"
        return self._index

    async def open(self) -> list[str]:
        """Open the index; returns the threads whose rows a crash may have left behind.

        Raises:
            OSError: the index cannot be made or opened.
        """
        self._index = await anyio.to_thread.run_sync(ThreadIndex, self._path)
        return await anyio.to_thread.run_sync(self._index.open_ids)

    async def begin(self, *, logs_exist: bool) -> None:
        """Repair what a crash left behind; an index that is missing is left to `make`.

        Raises:
            OSError: the index cannot be written.
        """
        index = self.index
        if not index.is_new:
            await anyio.to_thread.run_sync(self._repair)
        elif index.is_made_elsewhere or logs_exist:
            return
        else:
            await anyio.to_thread.run_sync(index.mark_complete)
        self._is_complete.set()

    async def make(self) -> None:
        """Make the index if it is missing, or wait for the process that does."""
        index = self.index
        while index.is_new:
            try:
                if index.is_made_elsewhere:
                    await anyio.sleep(WAIT_FOR_MAKER_S)
                    await anyio.to_thread.run_sync(index.look_again)
                else:
                    await anyio.to_thread.run_sync(self._rebuild)
            except OSError as exc:
                logger.warning("the index cannot be made, and is tried again: %s", exc)
                await anyio.sleep(REPAIR_S)
        self._is_complete.set()

    async def keep_repaired(self, repaired: Callable[[str], None]) -> None:
        """As long as this process lives, make rows anew that processes which died left behind.

        `repaired` is called with the id of each thread whose row was made.
        """
        while True:
            await anyio.sleep(REPAIR_S)
            try:
                found = await anyio.to_thread.run_sync(self._repair)
            except OSError as exc:
                logger.warning("the index cannot be repaired: %s", exc)
                continue
            for thread_id in found:
                repaired(thread_id)

    async def current(self) -> ThreadIndex:
        """Return the index, complete and with every change made before the call."""
        if not self._is_complete.is_set():
            await self._is_complete.wait()
        if self._is_behind:
            await self.flush()
        return self.index

    def note_change(self, state: ThreadState) -> None:
        """Note that a thread that is open here has changed."""
        self._behind[state.id] = state
        self.wake()

    def wake(self) -> None:
        """Let `changed` return."""
        self._changed.set()

    async def changed(self) -> None:
        """Wait until there is something to write, and FLUSH_S for what comes after it."""
        await self._changed.wait()
        self._changed = anyio.Event()
        await anyio.sleep(FLUSH_S)

    async def close_thread(self, thread: LiveThread) -> None:
        """Close a thread's log, with its final row in the index."""
        async with self.flushing:
            try:
                await thread.aclose(self._put_last)
            finally:
                self._behind.pop(thread.id, None)
                self._writers.held.discard(thread.id)
            if self._left_open:
                self.wake()

    def _put_last(self, state: ThreadState) -> None:
        # Before the lock is free: whoever has it next may remove the thread.
        try:
            self.index.put([ThreadRow.of(state)], is_open=False)
        except OSError as exc:
            # The row stays open, and is made from the log when the index can be written.
            logger.warning("the row of %s waits until it can be written: %s", state.id, exc)
            self._left_open = True

    @property
    def _is_behind(self) -> bool:
        return bool(self._behind) or self._left_open or self.flushing.locked()

    async def flush(self) -> None:
        """Write the rows that are behind; what cannot be written now is tried again."""
        async with self.flushing:
            behind, self._behind = self._behind, {}
            left_open, self._left_open = self._left_open, False
            try:
                if behind:
                    rows = [ThreadRow.of(state) for state in behind.values()]
                    put = partial(self.index.put, rows, is_open=True)
                    await anyio.to_thread.run_sync(put, limiter=self.workers)
                if left_open:
                    await anyio.to_thread.run_sync(self._repair)
            except OSError as exc:
                if not self._fails:
                    logger.warning("the index is behind until it can be written: %s", exc)
                self._fails = True
                self._behind = {**behind, **self._behind}
                self._left_open = left_open
                self.wake()
            else:
                self._fails = False

    async def aclose(self) -> None:
        """Close the index; closing what was never open is harmless."""
        if self._index is not None:
            await anyio.to_thread.run_sync(self._index.close)

    def _repair(self) -> list[str]:
        return repair_rows(self.index, self._writers.locks, self._path_of, self._writers.held)

    def _rebuild(self) -> None:
        logger.info("the index is made from the logs; lists wait for it")
        began = time.monotonic()
        count = rebuild(self.index, self._home, lambda _: None)
        logger.info("index: %d threads in %.1f s", count, time.monotonic() - began)
        self._repair()
