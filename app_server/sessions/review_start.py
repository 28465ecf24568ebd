"""Turns that review code because a client asked for it.

Source: docs/tools.md, "Reviews".
"""

from collections.abc import Callable
from dataclasses import dataclass

from app_server.sessions.errors import TurnActive
from app_server.sessions.turn.parts import ThreadParts
from app_server.sessions.turn.starter import TurnStarter
from protocol.turns import ReviewTarget


@dataclass(frozen=True, slots=True)
class ReviewStart:
    """The beginning of reviews in one loaded thread."""

    parts: ThreadParts
    starter: TurnStarter

    async def start(self, target: ReviewTarget) -> tuple[str, Callable[[], None]]:
        """Begin a review; gives the id of its turn, and what lets it run.

        Raises:
            TurnActive: a turn runs.
            ConfigError: an administrator's demands cannot be read.
            SessionClosed
            OSError: the disk refused; nothing was begun.
        """
        async with self.parts.slot.reserve():
            if self.parts.slot.run is not None:
                raise TurnActive
            settings, _ = await self.parts.allowed_settings()
            return await self.starter.start_review(target, settings)
