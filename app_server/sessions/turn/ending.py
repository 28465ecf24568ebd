"""Ends turns: in the log first, then for clients and for whoever waits for an idle thread."""

import logging
from collections.abc import Callable, Sequence

from app_server.sessions.publisher import TurnEnd
from app_server.sessions.turn.parts import ThreadParts
from app_server.sessions.turn.records import end_of_turn
from app_server.telemetry.figures import ServerFigures
from app_server.turns.model.interface import kind_of
from app_server.turns.run import TurnRun
from protocol.rollout import Record
from protocol.turns import TurnError

logger = logging.getLogger(__name__)


class TurnEnding:
    """Ends the turns of one loaded thread."""

    def __init__(
        self,
        parts: ThreadParts,
        turn_over: Sequence[Callable[[str], None]],
        figures: ServerFigures,
    ) -> None:
        """Each of `turn_over` is called with the id of each turn that ended."""
        self._thread = parts.thread
        self._slot = parts.slot
        self._status = parts.status
        self._publisher = parts.publisher
        self._goals = parts.goals
        self._hooks = parts.hooks
        self._clock = parts.clock
        self._turn_over = turn_over
        self._figures = figures

    async def end(self, run: TurnRun, end: TurnEnd, error: TurnError | None) -> None:
        """End the running turn; to be called under `TurnSlot.exclusive`.

        When the disk refuses, the end goes into the log with the next append, and the thread has
        the status of a system error.
        """
        at_ms = self._clock.now_ms()
        records = end_of_turn(self._thread.state, run, at_ms, end, error)
        left = list(self._thread.state.queued)
        marks: Sequence[Record] = ()
        try:
            marks = await self._thread.change(
                lambda state: [*records, *self._goals.marks_of_end(state, run.id, end, error)]
            )
        except OSError:
            logger.exception("the end of turn %s cannot be written", run.id)
            self._thread.defer(*records)
            self._status.log_failed = True
        turn = self._thread.state.turns[-1]
        for entry in left:
            if entry.message is not None:
                self._publisher.user_message(run.id, entry.message)
        self._slot.clear()
        self._thread.state.turn_settings = None
        self._goals.publish(run.id, marks)
        self._status.publish()
        self._publisher.turn_completed(turn, end, error, run.last_message)
        self._thread.open_items.clear()
        for turn_over in self._turn_over:
            turn_over(run.id)
        self._hooks.turn_ended(self._thread.id, run.id)
        failure = None if error is None else kind_of(error.codex_error_info)
        self._figures.turn_ended(end, failure)
        logger.info("turn %s%s", end, f": {failure}" if failure else "")
