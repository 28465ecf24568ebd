"""One response of a model, event by event: deltas out, finished items into the log."""

from typing import cast

from app_server.turns.model import (
    ItemAdded,
    ItemDone,
    ModelEvent,
    ReasoningDelta,
    ResponseCompleted,
    SummaryDelta,
    SummaryPartAdded,
    TextDelta,
)
from app_server.turns.recorder import TurnRecorder
from protocol.items import (
    AgentMessageDeltaNotification,
    AgentMessageThreadItem,
    ReasoningSummaryPartAddedNotification,
    ReasoningSummaryTextDeltaNotification,
    ReasoningTextDeltaNotification,
    ReasoningThreadItem,
)
from protocol.model import Json, JsonObject
from protocol.responses import MessagePhase
from protocol.turns import TokenUsageBreakdown

PHASES = ("commentary", "partial_answer", "final_answer")


class ResponseReader:
    """Reads one response; afterwards `calls` holds what the model wants to have called."""

    def __init__(self, recorder: TurnRecorder) -> None:
        self.calls: list[JsonObject] = []
        self.usage: TokenUsageBreakdown | None = None
        self.last_message: AgentMessageThreadItem | None = None
        self._recorder = recorder
        self._open: dict[str, AgentMessageThreadItem | ReasoningThreadItem] = {}

    async def take(self, event: ModelEvent) -> None:
        """Take one event.

        Raises:
            OSError: the disk refused.
        """
        thread_id, turn_id = self._recorder.thread.id, self._recorder.turn_id
        match event:
            case TextDelta():
                self._message(event.item_id)
                self._recorder.emit(
                    AgentMessageDeltaNotification(
                        thread_id=thread_id,
                        turn_id=turn_id,
                        item_id=event.item_id,
                        delta=event.delta,
                    )
                )
            case ItemAdded():
                self._begin(event.item)
            case ItemDone():
                await self._finish(event.item)
            case SummaryPartAdded():
                self._recorder.emit(
                    ReasoningSummaryPartAddedNotification(
                        thread_id=thread_id,
                        turn_id=turn_id,
                        item_id=event.item_id,
                        summary_index=event.index,
                    )
                )
            case SummaryDelta():
                self._recorder.emit(
                    ReasoningSummaryTextDeltaNotification(
                        thread_id=thread_id,
                        turn_id=turn_id,
                        item_id=event.item_id,
                        delta=event.delta,
                        summary_index=event.index,
                    )
                )
            case ReasoningDelta():
                self._recorder.emit(
                    ReasoningTextDeltaNotification(
                        thread_id=thread_id,
                        turn_id=turn_id,
                        item_id=event.item_id,
                        delta=event.delta,
                        content_index=event.index,
                    )
                )
            case ResponseCompleted():
                self.usage = event.usage

    def _begin(self, item: JsonObject) -> None:
        item_id = _id_of(item)
        match item["type"]:
            case "message" if item_id is not None:
                self._message(item_id)
            case "reasoning" if item_id is not None:
                self._reasoning(item_id)

    async def _finish(self, item: JsonObject) -> None:
        item_id = _id_of(item) or self._recorder.new_id()
        match item["type"]:
            case "message":
                message = self._message(item_id)
                message.text = "".join(texts_of(item.get("content")))
                phase = item.get("phase")
                message.phase = cast(MessagePhase, phase) if phase in PHASES else None
                await self._recorder.completed(message, [item])
                self.last_message = message
            case "reasoning":
                reasoning = self._reasoning(item_id)
                reasoning.summary = texts_of(item.get("summary"))
                reasoning.content = texts_of(item.get("content"))
                await self._recorder.completed(reasoning, [item])
            case "function_call" | "tool_search_call":
                await self._recorder.remember(item)
                self.calls.append(item)
            case _:
                await self._recorder.remember(item)
        self._open.pop(item_id, None)

    def _message(self, item_id: str) -> AgentMessageThreadItem:
        known = self._open.get(item_id)
        if isinstance(known, AgentMessageThreadItem):
            return known
        message = AgentMessageThreadItem(id=item_id, text="")
        self._open[item_id] = message
        self._recorder.started(message)
        return message

    def _reasoning(self, item_id: str) -> ReasoningThreadItem:
        known = self._open.get(item_id)
        if isinstance(known, ReasoningThreadItem):
            return known
        reasoning = ReasoningThreadItem(id=item_id)
        self._open[item_id] = reasoning
        self._recorder.started(reasoning)
        return reasoning


def _id_of(item: JsonObject) -> str | None:
    item_id = item.get("id")
    return item_id if isinstance(item_id, str) and item_id else None


def texts_of(parts: Json) -> list[str]:
    """Return the texts of a content, in order; parts of other kinds are left out."""
    if not isinstance(parts, list):
        return []
    texts = [part.get("text") for part in parts if isinstance(part, dict)]
    return [text for text in texts if isinstance(text, str)]
