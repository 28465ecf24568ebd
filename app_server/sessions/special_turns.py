"""Turns that a client asks for without input: compactions, and reviews of code.

Before a compaction a turn that runs is stopped; it begins when the end of that has been written.
Source: docs/compaction.md; docs/tools.md, "Reviews".
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from app_server.sessions.errors import SessionClosed, TurnActive
from app_server.sessions.turn.parts import ThreadParts
from app_server.sessions.turn.slot import TurnSlot
from app_server.sessions.turn.starter import TurnStarter, already_begun
from app_server.turns.run import TurnRun
from protocol.turns.code_review import ReviewTarget

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class CompactionStart:
    """Whether a compaction is wanted, and its beginning."""

    slot: TurnSlot
    starter: TurnStarter
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
            run = self.slot.run
            if run is None:
                return await self.starter.start_compaction()
            return already_begun if run.kind == "compact" else partial(self._stop, run)

    def _stop(self, run: TurnRun) -> None:
        self._is_due = True
        if self.slot.run is run:
            run.scope.cancel()
        else:
            self.wake()

    async def go_on(self) -> bool:
        """Begin a compaction that is wanted, if the thread is idle; False if none is wanted."""
        if not self._is_due:
            return False
        try:
            async with self.slot.reserve():
                if self.slot.run is not None:
                    return True
                self._is_due = False
                begin = await self.starter.start_compaction()
        except SessionClosed:
            # Nobody waits for it any more.
            pass
        except Exception:
            # Nobody is above this but the server, which goes on.
            logger.exception("a compaction cannot begin")
        else:
            begin()
        return True


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
