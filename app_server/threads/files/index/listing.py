"""Lists of all threads, those of Codex beside ours. All disk work runs in worker threads."""

import logging
import sqlite3
from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeAlias

from app_server.runtime.files.sqlite import identity
from app_server.threads.failures import ThreadNotFound
from app_server.threads.files.codex.threads import CodexThreads
from app_server.threads.files.index.derived import IndexReplaced
from app_server.threads.files.index.follower import IndexFollower
from app_server.threads.files.index.index import ThreadIndex
from app_server.threads.rows import ThreadPage, ThreadQuery, ThreadRow
from app_server.threads.usage import UsageQuery, UsageSums

MAX_PAGES = 16
"""Each has at most as many rows as a list may ask for."""


Version: TypeAlias = tuple[int, int]
"""Count of openings of the file, and SQLite's `data_version`."""


class ChangeCounter:
    """Detector of changes to the index, by this process or another one.

    It has a connection of its own, which never writes and never waits: SQLite counts what all other
    connections commit. For one thread alone.
    """

    def __init__(self, path: Path) -> None:
        """Take the path of an index that is there; it is opened with the first `read`."""
        self._path = path
        self._database: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._opened = 0

    def read(self) -> Version | None:
        """Return what is another value after every change; None if that is unknown."""
        try:
            # One that was damaged has been replaced, and changes no more.
            file = identity(self._path)
            if file != self._file:
                self.close()
            if self._database is None:
                self._file = file
                self._opened += 1
                # Reading only, so that it can never make a file.
                self._database = sqlite3.connect(
                    f"{self._path.absolute().as_uri()}?mode=ro", uri=True, timeout=0
                )
            (number,) = self._database.execute("PRAGMA data_version").fetchone()
        except (sqlite3.Error, UnicodeDecodeError):
            self.close()
            return None
        return self._opened, int(number)

    def close(self) -> None:
        """Close the connection; the next `read` opens another one."""
        if self._database is not None:
            self._database.close()
            self._database = None


class RecentPages:
    """The last pages that were read, at most MAX_PAGES; for the event loop."""

    def __init__(self, path: Path) -> None:
        """Take the path of the index."""
        self._counter = ChangeCounter(path)
        self._read_at: Version | None = None
        self._pages: deque[tuple[ThreadQuery, ThreadPage]] = deque(maxlen=MAX_PAGES)

    def version(self) -> Version | None:
        """Look what `keep` needs about a page that is read from now on."""
        return self._counter.read()

    def find(self, query: ThreadQuery) -> ThreadPage | None:
        """Return the page if it was read since the index last changed."""
        if not self._pages:
            return None
        if (version := self.version()) is None or version != self._read_at:
            self._pages.clear()
            return None
        return next((page for asked, page in self._pages if asked == query), None)

    def keep(self, query: ThreadQuery, page: ThreadPage, version: Version | None) -> None:
        """Remember a page; `version` is what was there before it was read."""
        if version is None:
            return
        if version != self._read_at:
            self._pages.clear()
            self._read_at = version
        self._pages.append((query, page))

    def close(self) -> None:
        """Forget everything, and close the connection."""
        self._pages.clear()
        self._counter.close()


logger = logging.getLogger(__name__)


class Listing:
    """Reads an index with every change made before the call."""

    def __init__(self, path: Path, follower: IndexFollower, codex: CodexThreads) -> None:
        """Take the path of the index that the follower opens."""
        self.path = path
        self._follower = follower
        self._codex = codex
        self._recent = RecentPages(path)

    async def find(self, thread_id: str) -> ThreadRow:
        """Return a thread's row without opening its log.

        Raises:
            ThreadNotFound
        """
        row = await self._follower.ask(partial(self._find, thread_id))
        if row is None:
            raise ThreadNotFound(thread_id)
        return row

    def _find(self, thread_id: str, index: ThreadIndex) -> ThreadRow | None:
        self._look_at_codex(index)
        return index.find(thread_id)

    async def page(self, query: ThreadQuery) -> ThreadPage:
        """Return one page of rows.

        Raises:
            InvalidCursor: the cursor was not given out by a page of this order.
        """
        await self._follower.current()
        if self._codex.is_looked_at() and (page := self._recent.find(query)) is not None:
            return page
        version = self._recent.version()
        page = await self._follower.ask(partial(self._page, query))
        self._recent.keep(query, page, version)
        return page

    def _page(self, query: ThreadQuery, index: ThreadIndex) -> ThreadPage:
        self._look_at_codex(index)
        return index.page(query)

    async def usage(self, query: UsageQuery) -> UsageSums:
        """Sum up the usage of one thread, or of all; see ThreadLists.usage."""
        return await self._follower.ask(partial(_usage, query))

    async def refresh(self) -> None:
        """Bring the rows up to date, those of Codex too."""
        await self._follower.ask(self._look_at_codex)

    async def rows_of(self, ids: Sequence[str]) -> Mapping[str, ThreadRow]:
        """Return rows by their ids, as far as they are there; as of the last `refresh`."""
        return await self._follower.ask(partial(_rows_of, ids))

    def check(self) -> None:
        """Look through the whole index; blocks. See DerivedFile.check."""
        self._follower.index.check()

    def close(self) -> None:
        """Forget the pages that were read, and close what watches the index."""
        self._recent.close()

    def _look_at_codex(self, index: ThreadIndex) -> None:
        try:
            self._codex.look(index)
        except IndexReplaced:
            raise
        except OSError as exc:
            logger.warning("threads of Codex are listed as they were: %s", exc)


def _usage(query: UsageQuery, index: ThreadIndex) -> UsageSums:
    return index.usage(query)


def _rows_of(ids: Sequence[str], index: ThreadIndex) -> Mapping[str, ThreadRow]:
    return index.rows_of(ids)
