"""News of threads among the servers of a database: which changed, and no more.

Source: docs/scale.md, "News of lists".
"""

from collections.abc import AsyncGenerator, Sequence
from typing import NamedTuple, Protocol


class ThreadChange(NamedTuple):
    """A thread that has changed."""

    thread_id: str
    is_new: bool = False
    """Whether it was begun."""


class ThreadNews(Protocol):
    """News between this server and the others; what is told may be lost."""

    async def publish(self, changes: Sequence[ThreadChange]) -> None:
        """Publish changes of threads to the other servers.

        Raises:
            OSError: nobody was told.
        """

    def subscribe(self) -> AsyncGenerator[Sequence[ThreadChange]]:
        """Yield changes that other servers published; none once in 5 s, and after a loss.

        The caller closes it: it holds a connection.
        """
