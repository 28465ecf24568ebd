"""Joins what one turn needs: its recorder, its tools, its model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app_server.runtime.pausable_timeouts import PausableTimeouts
from app_server.sessions.goals.tool import GoalTool
from app_server.sessions.settings import of_turn
from app_server.sessions.turn.parts import ThreadParts
from app_server.tools.registry import ThreadTools, review_table, tool_table
from app_server.turns.code_review.recorder import ReviewRecorder
from app_server.turns.code_review.run import CodeReview
from app_server.turns.model.catalogue.thread_model import ThreadModel
from app_server.turns.model.interface import Model
from app_server.turns.recorder import TurnRecorder
from app_server.turns.run import TurnOptions, TurnRun
from app_server.turns.session_settings import SessionSettings
from app_server.turns.tools.metadata import turn_metadata
from app_server.turns.tools.table import ToolTable
from app_server.turns.tools.turn import TurnContext
from protocol.model import JsonObject
from protocol.turns.code_review import ReviewTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFactory:
    """Makes the turns of one loaded thread."""

    parts: ThreadParts
    tools: Callable[[], ThreadTools]
    """Makes what the tools of a turn share with those of the others."""
    model: ThreadModel
    port: Model
    settings: SessionSettings
    timeouts: PausableTimeouts
    """For how long commands are waited for."""

    def make(self, turn_id: str, options: TurnOptions) -> TurnRun:
        """Make a turn that is in the log."""
        recorder = self.parts.recorder(turn_id)
        turn = self._context(recorder, options)
        table = tool_table(turn, self.tools(), GoalTool(self.parts.goals, turn_id))
        return self._run(recorder, table, options)

    def make_review(
        self, turn_id: str, target: ReviewTarget, surroundings: Sequence[JsonObject]
    ) -> TurnRun:
        """Make a turn that is in the log, and begins with a review.

        The reviewer is sent `surroundings` first.
        """
        run, options, parts = self.make(turn_id, TurnOptions()), TurnOptions(), self.parts
        recorder = parts.recorder(turn_id)
        review_recorder = ReviewRecorder(parts.thread, turn_id, parts.clients, parts.clock)
        table = review_table(self._context(review_recorder, options), self.tools())
        reviewer = self._run(review_recorder, table, options)
        review = CodeReview(target, recorder, review_recorder, reviewer, surroundings)

        async def work() -> None:
            run.last_message = await review.run()
            # What was queued meanwhile is for the thread's own model.
            state = parts.thread.state
            state.turn_settings = of_turn(state.settings)

        run.work, run.kind = work, "review"
        return run

    def _context(self, recorder: TurnRecorder, options: TurnOptions) -> TurnContext:
        return TurnContext(
            recorder=recorder,
            clients=self.parts.clients,
            waiting_on_approval=self.parts.status.waiting_on_approval,
            waiting_on_user_input=self.parts.status.waiting_on_user_input,
            interrupt=lambda: self.parts.slot.interrupt(recorder.turn_id),
            features=lambda: self.model.features,
            mcp_meta=options.mcp_meta,
            metadata=self._turn_metadata,
            output_limit_bytes=self.settings.output_limit_bytes,
            timeouts=self.timeouts,
        )

    def _run(self, recorder: TurnRecorder, table: ToolTable, options: TurnOptions) -> TurnRun:
        return TurnRun(recorder, self.port, self.model, table, options, self.settings)

    def _turn_metadata(self) -> JsonObject:
        run = self.parts.slot.run
        assert run is not None, "only a turn makes calls"
        return turn_metadata(
            self.parts.thread.state,
            user_was_asked=run.user_was_asked,
            trigger=run.options.trigger,
            parent_turn_id=run.options.parent_turn_id,
        )
