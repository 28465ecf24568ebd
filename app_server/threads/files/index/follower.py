"""The index follows the logs: rows of threads that changed are written in groups.

It is behind for other processes by FLUSH_S at most; lists of this process flush it first, and are
never behind. All disk work runs in worker threads.
Source: docs/architecture.md, "Threads on disk".
"""

import logging
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import anyio.to_thread

from app_server.threads.files.index.derived import IndexReplaced
from app_server.threads.files.index.index import ThreadIndex
from app_server.threads.files.index.rebuild import (
    put_held,
    rebuild,
    refresh_changed,
    repair_rows,
    written_ns,
)
from app_server.threads.files.writers import LogPaths, LogWriters
from app_server.threads.log.live import LiveThread
from app_server.threads.log.state import ThreadState
from app_server.threads.rows import ThreadRow

logger = logging.getLogger(__name__)

FLUSH_S = 0.5
"""Seconds that the index may be behind for other processes; lists of ours are never behind."""

REPAIR_S = 5.0
"""Seconds between repairs of the rows that processes which died have left open."""

INDEX_WORKERS = 2
"""Threads for lists and what they wait for, so that these are not behind the writes of turns."""

TRIES = 3
"""Of a question, while the index is begun anew under it."""

Answer = TypeVar("Answer")

WAIT_FOR_MAKER_S = 0.2
"""Between looks at an index that another process makes."""


class IndexFollower:
    """One index, and the threads whose rows are not up to date."""

    def __init__(self, home: Path, path: Path, paths: LogPaths, writers: LogWriters) -> None:
        """`path` is the file of the index."""
        self._home = home
        self._path = path
        self._paths = paths
        self._writers = writers
        self._index: ThreadIndex | None = None
        self._written_ns = 0
        """Unix nanoseconds of the last write to the index before it was opened."""
        self._is_complete = anyio.Event()
        self._is_unchecked = False
        self._lost = anyio.Event()
        """Set when the index was begun anew, until it is made."""
        self._generation = 0
        """Of the file that has the rows of all threads that are held here."""
        self.behind: dict[str, ThreadState] = {}
        """Threads whose rows have to be written, by id."""
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
        self._written_ns = await anyio.to_thread.run_sync(written_ns, self._path)
        self._index = await anyio.to_thread.run_sync(ThreadIndex, self._path)
        self._generation = self._index.generation
        return await anyio.to_thread.run_sync(self._index.open_ids)

    async def begin(self, *, logs_exist: bool) -> None:
        """Repair what a crash left behind; an index that is missing is left to `make`.

        Raises:
            OSError: the index cannot be written.
        """
        index = self.index
        if not index.is_new:
            await anyio.to_thread.run_sync(self._repair)
        elif not index.is_made_elsewhere and not logs_exist:
            await anyio.to_thread.run_sync(index.mark_complete)
            self._is_complete.set()

    async def make(self) -> None:
        """Make the index if it is missing, or wait for the process that does; check a small one."""
        self._is_unchecked = not self.index.is_new
        await self._make()
        if self._is_unchecked and await anyio.to_thread.run_sync(self.index.is_small):
            await self._check()
        self._is_complete.set()

    async def keep_made(self) -> None:
        """Check a large index, which answers meanwhile; then make it as often as it is lost."""
        if self._is_unchecked:
            await self._check()
            self._note_lost()
        while True:
            await self._lost.wait()
            self._lost = anyio.Event()
            await self._make()
            self._is_complete.set()

    async def _check(self) -> None:
        self._is_unchecked = False
        try:
            await anyio.to_thread.run_sync(self._check_all)
        except IndexReplaced:
            if not self._is_complete.is_set():
                await self._make()
        except OSError as exc:
            logger.warning("the index cannot be checked: %s", exc)

    async def _make(self) -> None:
        index = self.index
        while index.is_new:
            try:
                if index.is_made_elsewhere:
                    await anyio.sleep(WAIT_FOR_MAKER_S)
                    await anyio.to_thread.run_sync(index.look_again)
                else:
                    await anyio.to_thread.run_sync(self._rebuild)
            except IndexReplaced:
                continue
            except OSError as exc:
                logger.warning("the index cannot be made, and is tried again: %s", exc)
                await anyio.sleep(REPAIR_S)

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
            self._note_lost()
            for thread_id in found:
                repaired(thread_id)

    async def ask(self, question: Callable[[ThreadIndex], Answer]) -> Answer:
        """Have a question answered in a worker thread, with every change made before the call.

        An index that is found damaged is made again first.

        Raises:
            OSError: the index cannot be read.
            And what `question` raises.
        """
        for _ in range(TRIES - 1):
            index = await self.current()
            generation = index.generation
            with suppress(IndexReplaced):
                answer = await anyio.to_thread.run_sync(question, index, limiter=self.workers)
                index.require_generation(generation)
                return answer
        index = await self.current()
        return await anyio.to_thread.run_sync(question, index, limiter=self.workers)

    def _note_lost(self) -> None:
        if self.index.is_new and self._is_complete.is_set():
            self._is_complete = anyio.Event()
            self._lost.set()

    async def current(self) -> ThreadIndex:
        """Return the index, complete and with every change made before the call."""
        self._note_lost()
        if not self._is_complete.is_set():
            await self._is_complete.wait()
        if self._is_behind:
            await self.flush()
        return self.index

    def note_change(self, state: ThreadState) -> None:
        """Note that a thread that is open here has changed."""
        self.behind[state.id] = state
        self._changed.set()

    def wake(self) -> None:
        """Wake `changed`."""
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
                self.behind.pop(thread.id, None)
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
        return bool(self.behind) or self._left_open or self.flushing.locked()

    async def flush(self) -> None:
        """Write the rows that are behind; what cannot be written now is tried again."""
        async with self.flushing:
            behind, self.behind = self.behind, {}
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
                self.behind = {**behind, **self.behind}
                self._left_open = left_open
                self.wake()
            else:
                self._fails = False

    async def aclose(self) -> None:
        """Close the index; closing what was never open is harmless."""
        if self._index is not None:
            await anyio.to_thread.run_sync(self._index.close)

    def _repair(self) -> list[str]:
        self._put_held()
        return repair_rows(self.index, self._writers.locks, self._paths, self._writers.held)

    def _put_held(self) -> None:
        """Put the rows of our threads into an index that was begun anew since the last look."""
        generation = self.index.generation
        if self._generation != generation:
            put_held(self.index, map(self._paths.path_of, list(self._writers.held)))
            self._generation = generation

    def _check_all(self) -> None:
        index = self.index
        index.check()
        made = refresh_changed(index, self._home, self._paths, self._written_ns)
        if made:
            logger.warning("the index missed changes of %d threads, which it has again", made)

    def _rebuild(self) -> None:
        logger.info("the index is made from the logs; lists wait for it")
        began = time.monotonic()
        count = rebuild(self.index, self._home, lambda _: None)
        logger.info("index: %d threads in %.1f s", count, time.monotonic() - began)
        self._repair()
