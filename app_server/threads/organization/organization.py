"""Projects and sections, and the threads in them. All disk work runs in worker threads.

Source: docs/threads.md.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import anyio.to_thread

from app_server.threads.index.follower import IndexFollower
from app_server.threads.organization.filing import Filing, FilingState
from app_server.threads.organization.fractional_index import rank_between
from app_server.threads.organization.placement import Owner, Placement
from protocol.filing_records import FilingRecord


class Organization:
    """The projects and sections that threads can be in; servers that share a home share them."""

    def __init__(self, filing: Filing, follower: IndexFollower) -> None:
        self._filing = filing
        self._follower = follower

    @property
    def state(self) -> FilingState:
        """Which projects and sections there are, as of the last `refresh` or `change`."""
        return self._filing.state

    async def refresh(self) -> FilingState:
        """Take over what other servers have added.

        Raises:
            OSError: it cannot be read.
        """
        return await self._filing.refresh()

    async def change(
        self, decide: Callable[[FilingState], Sequence[FilingRecord]]
    ) -> Sequence[FilingRecord]:
        """Add what `decide` makes of the state; it is on disk when this returns.

        `decide` runs in a worker thread; what it raises comes out, and nothing was added. Returns
        what was added. Cancelling waits for a write that has begun.

        Raises:
            OSError: the disk refused, or other processes wrote for 5 s; nothing was added.
        """
        return await self._filing.change(decide)

    async def rank_in_section(self, section_id: str, moved: str, before: str | None) -> str:
        """Find a place for a thread in a section: before another one, or at the end.

        Raises:
            NotInSection: the other thread is not in this section.
        """
        placement = await self._placement()
        find = partial(placement.neighbours, section_id, moved, before)
        low, high = await anyio.to_thread.run_sync(find)
        return rank_between(low, high)

    async def project_recency(self) -> Mapping[str, int]:
        """Return when an unarchived thread of each project was last active, in milliseconds."""
        return await anyio.to_thread.run_sync((await self._placement()).project_recency)

    async def owners(
        self, attachment: tuple[str, str], archived: bool | None, after: str, limit: int
    ) -> Sequence[Owner]:
        """Return threads with an attachment of this type and key, by id, from `after` on."""
        placement = await self._placement()
        find = partial(placement.owners, attachment, archived, after, limit)
        return await anyio.to_thread.run_sync(find)

    async def _placement(self) -> Placement:
        return Placement(await self._follower.current())
