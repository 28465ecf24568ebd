"""Turns that compact a thread because a client asked for it.

A turn that runs is stopped first; the compaction begins when its end has been written.
Source: docs/compaction.md.
"""

import logging
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Protocol

from app_server.sessions.errors import SessionClosed
from app_server.turns.run import TurnRun

logger = logging.getLogger(__name__)


class CompactionHost(Protocol):
    """The thread that is compacted."""

    @property
    def run(self) -> TurnRun | None:
        """The running turn, if there is one."""

    def beginning(self) -> AbstractAsyncContextManager[None]:
        """Let no turn begin or end elsewhere while the context lasts.

        Raises:
            SessionClosed: no turn begins any more.
        """

    async def accept_compaction(self) -> Callable[[], None]:
        """Begin a turn that compacts, in the log.

        Raises:
            OSError: the disk refused; nothing was begun.
        """

    def wake(self) -> None:
        """Go on with what waits, if the thread is idle."""


class CompactionStart:
    """Whether a compaction is wanted, and its beginning."""

    def __init__(self, host: CompactionHost) -> None:
        self._host = host
        self._is_due = False

    async def start(self) -> Callable[[], None]:
        """Begin a compaction, once a turn that runs has been stopped; one that runs goes on.

        Gives what is to be called once the caller has been answered.

        Raises:
            SessionClosed
            OSError: the disk refused; nothing was begun.
        """
        async with self._host.beginning():
            run = self._host.run
            if run is None:
                return await self._host.accept_compaction()
            return _nothing if run.is_compaction else partial(self._stop, run)

    def _stop(self, run: TurnRun) -> None:
        self._is_due = True
        if self._host.run is run:
            run.scope.cancel()
        else:
            self._host.wake()

    async def go_on(self) -> bool:
        """Begin a compaction that is wanted, if the thread is idle; False if none is wanted."""
        if not self._is_due:
            return False
        try:
            async with self._host.beginning():
                if self._host.run is not None:
                    return True
                self._is_due = False
                begin = await self._host.accept_compaction()
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
