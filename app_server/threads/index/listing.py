"""Lists of all threads, those of Codex beside ours. All disk work runs in worker threads."""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from app_server.threads.codex.threads import CodexThreads
from app_server.threads.failures import ThreadNotFound
from app_server.threads.index.derived import IndexReplaced
from app_server.threads.index.follower import IndexFollower
from app_server.threads.index.index import ThreadIndex
from app_server.threads.index.query import ThreadPage, ThreadQuery
from app_server.threads.index.recent_pages import RecentPages
from app_server.threads.index.rows import ThreadRow

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


def _rows_of(ids: Sequence[str], index: ThreadIndex) -> Mapping[str, ThreadRow]:
    return index.rows_of(ids)
