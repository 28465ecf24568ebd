"""Items of the running turn that have begun and not ended, as far as they were sent to clients.

The log has items once they are complete. Whoever joins in between needs what there was before.
Source: docs/wire.md, "Joining a running turn".
"""

from collections import defaultdict
from io import StringIO
from typing import TypeAlias

from protocol.model import WireModel
from protocol.turns.items import (
    AgentMessageDeltaNotification,
    AgentMessageThreadItem,
    KnownThreadItem,
    PlanDeltaNotification,
    PlanThreadItem,
    ReasoningSummaryPartAddedNotification,
    ReasoningSummaryTextDeltaNotification,
    ReasoningTextDeltaNotification,
    ReasoningThreadItem,
    ThreadItem,
)

Texts: TypeAlias = defaultdict[tuple[str, int], StringIO]
"""By the member that they belong to, and the index in it.

A list of pieces would take fifty bytes and more for each, however short it is.
"""


class OpenItems:
    """The open items of one thread, in the order in which they began."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: dict[str, tuple[KnownThreadItem, Texts]] = {}

    def begin(self, item: KnownThreadItem) -> None:
        """Add an item as it is sent to clients; the object must not change any more."""
        self._items[item.id] = item, defaultdict(StringIO)

    def end(self, item_id: str) -> None:
        """Take an item off: it is complete, and in the log."""
        self._items.pop(item_id, None)

    def clear(self) -> None:
        """Take everything off, at the end of the turn."""
        self._items.clear()

    def note(self, event: WireModel) -> None:
        """Take into account what clients are sent of an open item."""
        match event:
            case AgentMessageDeltaNotification() | PlanDeltaNotification():
                self._add(event.item_id, "text", 0, event.delta)
            case ReasoningTextDeltaNotification():
                self._add(event.item_id, "content", event.content_index, event.delta)
            case ReasoningSummaryTextDeltaNotification():
                self._add(event.item_id, "summary", event.summary_index, event.delta)
            case ReasoningSummaryPartAddedNotification():
                self._add(event.item_id, "summary", event.summary_index, "")

    def add_text(self, item_id: str, text: str) -> None:
        """Take into account a piece of a message that came with one that was noted."""
        self._add(item_id, "text", 0, text)

    def _add(self, item_id: str, member: str, index: int, text: str) -> None:
        known = self._items.get(item_id)
        # What has no place among the parts comes with the finished item.
        if known is not None and index >= 0:
            known[1][member, index].write(text)

    def snapshot(self) -> list[ThreadItem]:
        """Give the items with their texts so far."""
        return [_with_texts(item, pieces) for item, pieces in self._items.values()]


def _with_texts(item: KnownThreadItem, texts: Texts) -> ThreadItem:
    match item:
        case AgentMessageThreadItem() | PlanThreadItem():
            return item.model_copy(update={"text": _text(texts, "text", 0)})
        case ReasoningThreadItem():
            members = {"summary": _parts(texts, "summary"), "content": _parts(texts, "content")}
            return item.model_copy(update=members)
    return item


def _parts(texts: Texts, member: str) -> list[str]:
    """Give the texts of a member; indexes that were left out are empty."""
    length = max((index + 1 for name, index in texts if name == member), default=0)
    return [_text(texts, member, index) for index in range(length)]


def _text(texts: Texts, member: str, index: int) -> str:
    written = texts.get((member, index))
    return "" if written is None else written.getvalue()
