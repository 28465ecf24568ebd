"""Turns that compact a thread because a client asked for it.

A turn that runs is stopped first; the compaction begins when its end has been written.
Source: docs/compaction.md.
"""

import logging
from collections.abc import Callable
from functools import partial

from app_server.sessions.errors import SessionClosed
from app_server.sessions.turn.slot import TurnSlot
from app_server.sessions.turn.starter import TurnStarter
from app_server.turns.run import TurnRun

logger = logging.getLogger(__name__)


class CompactionStart:
    """Whether a compaction is wanted, and its beginning."""

    def __init__(self, slot: TurnSlot, starter: TurnStarter, wake: Callable[[], None]) -> None:
        """`wake` lets an idle thread go on with what waits."""
        self._slot = slot
        self._starter = starter
        self._wake = wake
        self._is_due = False

    async def start(self) -> Callable[[], None]:
        """Begin a compaction, once a turn that runs has been stopped; one that runs goes on.

        Gives what is to be called once the caller has been answered.

        Raises:
            SessionClosed
            OSError: the disk refused; nothing was begun.
        """
        async with self._slot.reserve():
            run = self._slot.run
            if run is None:
                return await self._starter.start_compaction()
            return _nothing if run.is_compaction else partial(self._stop, run)

    def _stop(self, run: TurnRun) -> None:
        self._is_due = True
        if self._slot.run is run:
            run.scope.cancel()
        else:
            self._wake()

    async def go_on(self) -> bool:
        """Begin a compaction that is wanted, if the thread is idle; False if none is wanted."""
        if not self._is_due:
            return False
        try:
            async with self._slot.reserve():
                if self._slot.run is not None:
                    return True
                self._is_due = False
                begin = await self._starter.start_compaction()
        except SessionClosed:
            # Nobody waits for it any more.
            pass
        except Exception:
            # Nobody is above this but the server, which goes on.
            logger.exception("a compaction cannot begin")
        else:
            begin()
        return True


def _nothing() -> None:
    pass
