"""A loaded thread's slot for a turn: which turn runs, and who may begin, change or end one.

Knows: the order of whatever a thread accepts, and whether it still accepts anything.
Does not know: the log, clients, how a turn runs.
"""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import anyio

from app_server.models.prompt.request import STOPPED_BY_REVIEWER
from app_server.sessions.errors import (
    NoActiveTurn,
    SessionClosed,
    SessionUnloading,
    TurnIdMismatch,
)
from app_server.turns.running_turn import RunningTurn


class TurnSlot:
    """Holds at most one running turn."""

    def __init__(self) -> None:
        self.turn: RunningTurn | None = None
        """The running turn, if there is one."""
        self.unpublished_turn_id: str | None = None
        """The turn that was accepted and that was not announced yet."""
        self.idle = anyio.Event()
        """Set while no turn runs."""
        self.idle.set()
        self.emptied_s = float("-inf")
        """When the last turn ended, in the time of the event loop."""
        self.closed = False
        """Whether the thread is leaving memory; changed under `exclusive`."""
        self.draining = False
        """Whether no turn begins any more; the running one goes on."""
        self._accepting = anyio.Lock()
        self._beginning = anyio.Lock()
        """Held, before `_accepting`, to begin turns: whoever has it keeps an idle thread idle."""

    @property
    def active_turn_id(self) -> str | None:
        """The running turn, if there is one."""
        return None if self.turn is None else self.turn.id

    @property
    def is_asking(self) -> bool:
        """Whether a model is being asked at this moment."""
        return self.turn is not None and self.turn.loop.is_asking

    def require_active(self, turn_id: str) -> RunningTurn:
        """Return the running turn if it is the one that is meant; "" means any.

        Raises:
            NoActiveTurn, TurnIdMismatch
        """
        if self.turn is None:
            raise NoActiveTurn
        if turn_id not in ("", self.turn.id):
            raise TurnIdMismatch(turn_id, self.turn.id)
        return self.turn

    # Who may change what.

    def exclusive(self) -> AbstractAsyncContextManager[None]:
        """Let nothing else be accepted, and no turn end, while the context lasts."""
        return self._accepting

    @asynccontextmanager
    async def changing(self) -> AsyncIterator[None]:
        """Be `exclusive` in a thread that is open.

        Raises:
            SessionClosed: nothing is accepted any more.
        """
        async with self._accepting:
            self._require_open()
            yield

    @asynccontextmanager
    async def reserve(self, *, while_draining: bool = False) -> AsyncIterator[None]:
        """Let no turn begin or end elsewhere while the context lasts, so that one may begin here.

        `while_draining` is for input that a running turn may take, or has taken: whoever sets it
        looks at `draining` before a turn begins.

        Raises:
            SessionClosed: no turn begins any more.
        """
        async with self._beginning, self._accepting:
            self._require_open()
            if self.draining and not while_draining:
                raise SessionClosed
            yield

    @asynccontextmanager
    async def emptied(self) -> AsyncIterator[None]:
        """Stop the running turn, and let none begin while the context lasts.

        Raises:
            SessionClosed: nothing is accepted any more.
        """
        async with self._beginning:
            self.cancel()
            await self.idle.wait()
            async with self._accepting:
                self._require_open()
                yield

    def _require_open(self) -> None:
        if self.closed:
            raise SessionClosed if self.draining else SessionUnloading

    # Filling and emptying.

    def fill(self, turn: RunningTurn) -> None:
        """Put a turn in that is in the log; to be called under `reserve`."""
        self.turn = turn
        self.unpublished_turn_id = turn.id
        self.idle = anyio.Event()

    def clear(self) -> None:
        """Take the turn out whose end is in the log; to be called under `exclusive`."""
        self.turn = None
        self.emptied_s = anyio.current_time()
        self.idle.set()

    def cancel(self) -> None:
        """Stop the running turn, if there is one; queued input goes on after it."""
        if self.turn is not None:
            self.turn.scope.cancel()

    def interrupt(self, turn_id: str) -> None:
        """Stop the running turn for the user; its end arrives as `turn/completed`.

        Raises:
            NoActiveTurn, TurnIdMismatch
        """
        self.require_active(turn_id).interrupt()

    def stop_denied_turn(self, turn_id: str) -> None:
        """Interrupt the running turn for the reviewer, if it is the one that is meant."""
        if self.turn is not None and self.turn.id == turn_id:
            self.turn.interruption = STOPPED_BY_REVIEWER
            self.turn.interrupt()
