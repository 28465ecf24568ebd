"""Joins what one turn needs: its recorder, its tools, its model."""

from collections.abc import Callable, Sequence

from app_server.runtime.held_clocks import HeldClocks
from app_server.sessions.goals.tool import GoalTool
from app_server.sessions.ports import SessionPorts
from app_server.sessions.turn.parts import ThreadParts
from app_server.tools.registry import ThreadTools, review_table, tool_table
from app_server.turns.code_review.recorder import ReviewRecorder
from app_server.turns.code_review.run import CodeReview
from app_server.turns.model.catalogue.thread_model import ThreadModel
from app_server.turns.recorder import TurnRecorder
from app_server.turns.run import TurnOptions, TurnRun
from app_server.turns.session_settings import SessionSettings
from app_server.turns.tools.metadata import turn_metadata
from app_server.turns.tools.table import ToolTable
from app_server.turns.tools.turn import TurnContext
from protocol.model import JsonObject
from protocol.turns import ReviewTarget


class TurnFactory:
    """Makes the turns of one loaded thread."""

    def __init__(
        self,
        parts: ThreadParts,
        tools: Callable[[], ThreadTools],
        model: ThreadModel,
        settings: SessionSettings,
        ports: SessionPorts,
        clocks: HeldClocks,
    ) -> None:
        """`tools` makes what the tools of a turn share with those of the others."""
        self._thread = parts.thread
        self._slot = parts.slot
        self._status = parts.status
        self._goals = parts.goals
        self._tools = tools
        self._model = model
        self._settings = settings
        self._ports = ports
        self._clocks = clocks

    @property
    def review_model(self) -> str | None:
        """The model that reviews code; None: the thread's own."""
        return self._settings.review_model

    def make(self, turn_id: str, options: TurnOptions, *, compacts: bool = False) -> TurnRun:
        """Make a turn that is in the log; `compacts` makes it begin with a compaction."""
        recorder = TurnRecorder(self._thread, turn_id, self._ports.clients, self._ports.clock)
        turn = self._context(recorder, options)
        table = tool_table(turn, self._tools(), GoalTool(self._goals, turn_id))
        return self._run(recorder, table, options, compacts=compacts)

    def make_review(
        self, turn_id: str, target: ReviewTarget, surroundings: Sequence[JsonObject]
    ) -> TurnRun:
        """Make a turn that is in the log, and begins with a review.

        The reviewer is sent `surroundings` first.
        """
        run, options, ports = self.make(turn_id, TurnOptions()), TurnOptions(), self._ports
        recorder = TurnRecorder(self._thread, turn_id, ports.clients, ports.clock)
        review_recorder = ReviewRecorder(self._thread, turn_id, ports.clients, ports.clock)
        table = review_table(self._context(review_recorder, options), self._tools())
        reviewer = self._run(review_recorder, table, options)
        run.review = CodeReview(target, recorder, review_recorder, reviewer, surroundings).run
        return run

    def _context(self, recorder: TurnRecorder, options: TurnOptions) -> TurnContext:
        return TurnContext(
            recorder=recorder,
            clients=self._ports.clients,
            waiting_on_approval=self._status.waiting_on_approval,
            waiting_on_user_input=self._status.waiting_on_user_input,
            interrupt=lambda: self._slot.interrupt(recorder.turn_id),
            features=lambda: self._model.features,
            mcp_meta=options.mcp_meta,
            metadata=self._turn_metadata,
            output_limit_bytes=self._settings.output_limit_bytes,
            clocks=self._clocks,
        )

    def _run(
        self,
        recorder: TurnRecorder,
        table: ToolTable,
        options: TurnOptions,
        *,
        compacts: bool = False,
    ) -> TurnRun:
        return TurnRun(
            recorder,
            self._ports.model,
            self._model,
            table,
            options,
            self._settings,
            compacts=compacts,
        )

    def _turn_metadata(self) -> JsonObject:
        run = self._slot.run
        assert run is not None, "only a turn makes calls"
        return turn_metadata(
            self._thread.state,
            user_was_asked=run.user_was_asked,
            trigger=run.options.trigger,
            parent_turn_id=run.options.parent_turn_id,
        )
