"""News of threads among the servers of a database: which changed, and no more.

Source: docs/scale.md, "News of lists".
"""

from collections.abc import AsyncIterator, Sequence
from typing import Protocol


class ThreadNews(Protocol):
    """News between this server and the others; what is told may be lost."""

    async def tell(self, thread_ids: Sequence[str]) -> None:
        """Tell the others that threads have changed.

        Raises:
            OSError: nobody was told.
        """

    def heard(self) -> AsyncIterator[Sequence[str]]:
        """Give the threads that others say have changed; none once in 5 s, and after a loss."""
