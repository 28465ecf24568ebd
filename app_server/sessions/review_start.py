"""Turns that review code because a client asked for it.

Source: docs/tools.md, "Reviews".
"""

from collections.abc import Awaitable, Callable

from app_server.config.requirements import Requirements
from app_server.sessions.errors import TurnActive
from app_server.sessions.managed_policy import with_required
from app_server.sessions.turn.slot import TurnSlot
from app_server.sessions.turn.starter import TurnStarter
from app_server.threads.log.live import LiveThread
from protocol.turns import ReviewTarget


class ReviewStart:
    """The beginning of reviews in one loaded thread."""

    def __init__(
        self,
        thread: LiveThread,
        slot: TurnSlot,
        starter: TurnStarter,
        requirements: Callable[[], Awaitable[Requirements]],
    ) -> None:
        self._thread = thread
        self._slot = slot
        self._starter = starter
        self._requirements = requirements

    async def start(self, target: ReviewTarget) -> tuple[str, Callable[[], None]]:
        """Begin a review; gives the id of its turn, and what lets it run.

        Raises:
            TurnActive: a turn runs.
            ConfigError: an administrator's demands cannot be read.
            SessionClosed
            OSError: the disk refused; nothing was begun.
        """
        async with self._slot.reserve():
            if self._slot.run is not None:
                raise TurnActive
            settings, _ = with_required(self._thread.state.settings, await self._requirements())
            return await self._starter.start_review(target, settings)
