"""Turns that a client asks for without input: compactions, and reviews of code.

Before a compaction a turn that runs is stopped; it begins when the end of that has been written.
Source: docs/compaction.md; docs/tools.md, "Reviews".
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from app_server.sessions.errors import SessionClosed, TurnActive
from app_server.sessions.settings import of_review
from app_server.sessions.turn.context import ThreadContext
from app_server.sessions.turn.slot import TurnSlot
from app_server.sessions.turn.turn import (
    CompactionWork,
    ReviewWork,
    ThreadTurns,
    already_begun,
)
from app_server.turns.running_turn import RunningTurn
from protocol.turns.code_review import ReviewTarget

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class CompactionStart:
    """Whether a compaction is wanted, and its beginning."""

    slot: TurnSlot
    turns: ThreadTurns
    wake: Callable[[], None]
    """Lets an idle thread go on with what waits."""
    _is_due: bool = field(default=False, init=False)

    async def start(self) -> Callable[[], None]:
        """Begin a compaction, once a turn that runs has been stopped; one that runs goes on.

        Gives what is to be called once the caller has been answered.

        Raises:
            SessionClosed
            OSError: the disk refused; nothing was begun.
        """
        async with self.slot.reserve():
            turn = self.slot.turn
            if turn is None:
                return (await self.turns.begin(CompactionWork())).run_soon
            return already_begun if turn.kind == "compact" else partial(self._stop, turn)

    def _stop(self, turn: RunningTurn) -> None:
        self._is_due = True
        if self.slot.turn is turn:
            turn.scope.cancel()
        else:
            self.wake()

    async def go_on(self) -> bool:
        """Begin a compaction that is wanted, if the thread is idle; False if none is wanted."""
        if not self._is_due:
            return False
        try:
            async with self.slot.reserve():
                if self.slot.turn is not None:
                    return True
                self._is_due = False
                turn = await self.turns.begin(CompactionWork())
        except SessionClosed:
            # Nobody waits for it any more.
            pass
        except Exception:
            # Nobody is above this but the server, which goes on.
            logger.exception("a compaction cannot begin")
        else:
            turn.run_soon()
        return True


@dataclass(frozen=True, slots=True)
class ReviewStart:
    """The beginning of reviews in one loaded thread."""

    context: ThreadContext
    turns: ThreadTurns

    async def start(self, target: ReviewTarget) -> tuple[str, Callable[[], None]]:
        """Begin a review; gives the id of its turn, and what lets it run.

        Raises:
            TurnActive: a turn runs.
            ConfigError: an administrator's demands cannot be read.
            SessionClosed
            OSError: the disk refused; nothing was begun.
        """
        async with self.context.slot.reserve():
            if self.context.slot.turn is not None:
                raise TurnActive
            settings, _ = await self.context.allowed_settings()
            reviewed = of_review(settings, self.turns.settings.review_model)
            turn = await self.turns.begin(ReviewWork(target, reviewed))
            return turn.id, turn.run_soon
