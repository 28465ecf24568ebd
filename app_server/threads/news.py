"""News of threads among the servers of a database: which changed, and no more.

Source: docs/scale.md, "News of lists".
"""

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol


class ThreadChange(NamedTuple):
    """A thread that has changed."""

    thread_id: str
    is_new: bool = False
    """Whether it was begun."""


class ThreadNews(Protocol):
    """News between this server and the others; what is told may be lost."""

    async def tell(self, changes: Sequence[ThreadChange]) -> None:
        """Tell the others that threads have changed.

        Raises:
            OSError: nobody was told.
        """

    def heard(self) -> AsyncIterator[Sequence[ThreadChange]]:
        """Give what others say has changed; nothing once in 5 s, and after a loss."""
