"""Items of the running turn that have begun and not ended, as far as clients were told of them.

The log has items once they are complete. Whoever joins in between needs what there was before.
Source: docs/wire.md, "Joining a running turn".
"""

from collections import defaultdict
from typing import TypeAlias

from protocol.items import (
    AgentMessageDeltaNotification,
    AgentMessageThreadItem,
    KnownThreadItem,
    ReasoningSummaryPartAddedNotification,
    ReasoningSummaryTextDeltaNotification,
    ReasoningTextDeltaNotification,
    ReasoningThreadItem,
    ThreadItem,
)
from protocol.model import WireModel

Pieces: TypeAlias = defaultdict[tuple[str, int], list[str]]
"""By the member that they belong to, and the index in it."""


class OpenItems:
    """The open items of one thread, in the order in which they began."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: dict[str, tuple[KnownThreadItem, Pieces]] = {}

    def begin(self, item: KnownThreadItem) -> None:
        """Add an item as clients are told of it; the object must not change any more."""
        self._items[item.id] = item, defaultdict(list)

    def end(self, item_id: str) -> None:
        """Take an item off: it is complete, and in the log."""
        self._items.pop(item_id, None)

    def clear(self) -> None:
        """Take everything off, at the end of the turn."""
        self._items.clear()

    def note(self, event: WireModel) -> None:
        """Take into account what clients are told of an open item."""
        match event:
            case AgentMessageDeltaNotification():
                self._add(event.item_id, "text", 0, event.delta)
            case ReasoningTextDeltaNotification():
                self._add(event.item_id, "content", event.content_index, event.delta)
            case ReasoningSummaryTextDeltaNotification():
                self._add(event.item_id, "summary", event.summary_index, event.delta)
            case ReasoningSummaryPartAddedNotification():
                self._add(event.item_id, "summary", event.summary_index, "")

    def _add(self, item_id: str, member: str, index: int, text: str) -> None:
        known = self._items.get(item_id)
        if known is not None:
            known[1][member, index].append(text)

    def snapshot(self) -> list[ThreadItem]:
        """Give the items with their texts so far."""
        return [_with_texts(item, pieces) for item, pieces in self._items.values()]


def _with_texts(item: KnownThreadItem, pieces: Pieces) -> ThreadItem:
    match item:
        case AgentMessageThreadItem():
            return item.model_copy(update={"text": "".join(pieces.get(("text", 0), ()))})
        case ReasoningThreadItem():
            texts = {"summary": _parts(pieces, "summary"), "content": _parts(pieces, "content")}
            return item.model_copy(update=texts)
    return item


def _parts(pieces: Pieces, member: str) -> list[str]:
    """Join the texts of a member; indexes that were left out are empty."""
    length = max((index + 1 for name, index in pieces if name == member), default=0)
    return ["".join(pieces.get((member, index), ())) for index in range(length)]
