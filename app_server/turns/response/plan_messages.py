"""Messages of a model in plan mode: what it says, and the plan that it proposes, as two items.

An item is announced with its first text, so that a message which is nothing but a plan is one item.
Source: docs/tools.md, "Plan mode".
"""

from dataclasses import dataclass, field

from app_server.models.proposed_plan import Piece, PlanSplitter, split_plan
from app_server.turns.recorder import TurnRecorder
from protocol.model import JsonObject
from protocol.turns.items import (
    AgentMessageDeltaNotification,
    AgentMessageThreadItem,
    PlanDeltaNotification,
    PlanThreadItem,
)


class TurnPlans:
    """The plans that one turn proposes."""

    def __init__(self, recorder: TurnRecorder) -> None:
        self._recorder = recorder
        self._count = 0

    def message(self, message: AgentMessageThreadItem) -> "PlanMessage":
        """Begin a message that is not announced yet."""
        return PlanMessage(self, self._recorder, message)

    def new_plan(self) -> PlanThreadItem:
        """Make an item for one more plan."""
        self._count += 1
        suffix = "" if self._count == 1 else f"-{self._count}"
        return PlanThreadItem(id=f"{self._recorder.turn_id}-plan{suffix}", text="")


@dataclass(slots=True)
class PlanMessage:
    """One message, while it arrives."""

    plans: TurnPlans
    recorder: TurnRecorder
    message: AgentMessageThreadItem
    _plan: PlanThreadItem | None = None
    _splitter: PlanSplitter = field(default_factory=PlanSplitter)
    _blank: str = ""
    """Of the message, before anything that is to be seen."""

    def take(self, delta: str) -> None:
        """Take more text."""
        for piece in self._splitter.feed(delta):
            self._emit(piece)

    async def finish(self, text: str, raw: JsonObject) -> AgentMessageThreadItem | None:
        """Complete the items with the whole text; returns the message unless all of it is a plan.

        Raises:
            OSError: the disk refused.
        """
        for piece in self._splitter.finish():
            self._emit(piece)
        said, planned = split_plan(text)
        history = [raw]
        if planned is not None:
            plan = self._began_plan()
            plan.text = planned
            await self.recorder.completed(plan, history)
            history = []
        elif self._plan is not None:
            self.recorder.abandoned(self._plan.id)
        if not said.strip() and planned is not None:
            return None
        message = self._began_message()
        message.text = said
        await self.recorder.completed(message, history)
        return message

    def abandon(self) -> None:
        """Abandon items that will not be completed."""
        for item in (self.message, self._plan):
            if item is not None and item.started_at_ms is not None:
                self.recorder.abandoned(item.id)

    def _emit(self, piece: Piece) -> None:
        ids = self.recorder.ids
        if piece.part == "plan":
            plan = self._began_plan()
            self.recorder.emit(PlanDeltaNotification(**ids, item_id=plan.id, delta=piece.text))
            return
        text, self._blank = self._blank + piece.text, ""
        if self.message.started_at_ms is None and not text.strip():
            self._blank = text
            return
        message = self._began_message()
        self.recorder.emit(AgentMessageDeltaNotification(**ids, item_id=message.id, delta=text))

    def _began_message(self) -> AgentMessageThreadItem:
        if self.message.started_at_ms is None:
            self.recorder.started(self.message)
        return self.message

    def _began_plan(self) -> PlanThreadItem:
        if self._plan is None:
            self._plan = self.plans.new_plan()
            self.recorder.started(self._plan)
        return self._plan
