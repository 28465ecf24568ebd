"""Ends turns: in the log first, then for clients and for whoever waits for an idle thread."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from app_server.sessions.publisher import TurnEnd
from app_server.sessions.turn.parts import ThreadParts
from app_server.sessions.turn.records import end_of_turn
from app_server.telemetry.metrics import ServerMetrics
from app_server.turns.approval.asking import ThreadQuestions
from app_server.turns.model.interface import kind_of
from app_server.turns.run import TurnRun
from protocol.log.rollout import Record
from protocol.turns.turn import TurnError

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TurnEnding:
    """Ends the turns of one loaded thread."""

    parts: ThreadParts
    questions: ThreadQuestions
    metrics: ServerMetrics

    async def end(self, run: TurnRun, end: TurnEnd, error: TurnError | None) -> None:
        """End the running turn; to be called under `TurnSlot.exclusive`.

        When the disk refuses, the end goes into the log with the next append, and the thread has
        the status of a system error.
        """
        at_ms = self.parts.clock.now_ms()
        records = end_of_turn(self.parts.thread.state, run, at_ms, end, error)
        left = list(self.parts.thread.state.queued)
        marks: Sequence[Record] = ()
        try:
            marks = await self.parts.thread.change(
                lambda state: [*records, *self.parts.goals.marks_of_end(state, run.id, end, error)]
            )
        except OSError:
            logger.exception("the end of turn %s cannot be written", run.id)
            self.parts.thread.defer(*records)
            self.parts.status.log_failed = True
        turn = self.parts.thread.state.turns[-1]
        for entry in left:
            if entry.message is not None:
                self.parts.publisher.user_message(run.id, entry.message)
        self.parts.slot.clear()
        self.parts.thread.state.turn_settings = None
        self.parts.goals.publish(run.id, marks)
        self.parts.status.publish()
        self.parts.publisher.turn_completed(turn, end, error, run.last_message)
        self.parts.thread.open_items.clear()
        self.questions.turn_ended(run.id)
        self.parts.hooks.turn_ended(self.parts.thread.id, run.id)
        failure = None if error is None else kind_of(error.codex_error_info)
        self.metrics.turn_ended(end, failure)
        logger.info("turn %s%s", end, f": {failure}" if failure else "")
