"""The history of stored threads: questions about one, and searches over all."""

from collections.abc import Callable, Mapping
from typing import TypeVar

import anyio.to_thread

from app_server.threads.codex.copies import CodexCopies
from app_server.threads.codex.threads import NoCodexThread
from app_server.threads.failures import ThreadNotFound
from app_server.threads.history.history import ThreadHistory
from app_server.threads.history.pages import HistoryReader
from app_server.threads.history.search import SearchPage, SearchQuery
from app_server.threads.index.listing import Listing
from app_server.threads.index.rows import ThreadRow
from app_server.threads.log_files import LogFiles

Answer = TypeVar("Answer")


class StoredHistory:
    """What was said in threads, loaded or not, those of Codex too."""

    def __init__(
        self, history: ThreadHistory, files: LogFiles, lists: Listing, copies: CodexCopies
    ) -> None:
        self._history = history
        self._files = files
        self._lists = lists
        self._copies = copies

    async def ask(self, thread_id: str, question: Callable[[HistoryReader], Answer]) -> Answer:
        """Have a question about one thread's history answered in a worker thread.

        The thread need not be loaded; a loaded one is seen as its log is by now. One of Codex's is
        seen as an import would make it.

        Raises:
            InvalidThreadId, ThreadNotFound, ThreadTooNew, ThreadDamaged, OSError
            And what `question` raises.
        """
        try:
            path = await anyio.to_thread.run_sync(self._files.log_to_ask, thread_id)
            return await self._history.ask(thread_id, path, question)
        except (FileNotFoundError, NoCodexThread):
            raise ThreadNotFound(thread_id) from None

    async def search(self, query: SearchQuery) -> tuple[SearchPage, Mapping[str, ThreadRow]]:
        """Return one page of threads by what was said in them, up to the call; and their rows.

        Raises:
            InvalidCursor: see ThreadSearch.page.
        """
        await self._lists.refresh()
        await self._history.take_in_copies(self._copies)
        page = await self._history.search(query)
        ids = [found.thread_id for found in page.found]
        return page, await self._lists.rows_of(ids)
