"""Outline of a log: offsets of the turns and items of a thread. No I/O.

The same lines that add up to a ThreadState add up to outlines, one a turn; both go by the order of
the records, so that the n-th item here is the n-th item there.
"""

import re
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple

from protocol.log.rollout import (
    InputQueued,
    ItemCompleted,
    ItemEnded,
    ItemLeftRunning,
    Record,
    TurnCompleted,
    TurnStarted,
    parse_record,
)
from protocol.turns.turn import TurnError

_ITEM = re.compile(rb'"item":\{"startedAtMs":[^,]*,"completedAtMs":[^,]*,"type":"(\w+)"')
_HEAD_BYTES = 512


class LogLine(NamedTuple):
    """One whole line."""

    offset: int
    """Bytes before it."""
    content: bytes
    """With its line end; empty when it is too long to be looked at."""
    type: str
    """Type of its record; empty when it cannot be read."""
    at_ms: int
    end: int
    """Offset of the next line."""

    def record(self, *types: str) -> Record | None:
        """Read its record if that is of one of these types."""
        return parse_record(self.content) if self.type in types else None


class ItemKind(IntEnum):
    """Kind of an item, known without parsing it."""

    OTHER = 0
    USER = 1
    AGENT = 2
    QUEUED_USER = 3
    """A user's message that stands in an `inputQueued` line."""


class ItemPlace(NamedTuple):
    """The line that holds an item."""

    offset: int
    length: int
    kind: ItemKind


@dataclass(slots=True)
class TurnOutline:
    """One turn: its header, and the places of its items."""

    number: int
    """Count of turns started before it, reverted ones included: unique in a thread."""
    id: str
    started_at_ms: int
    status: str = "inProgress"
    error: TurnError | None = None
    completed_at_ms: int | None = None
    duration_ms: int | None = None
    packed: "array[int]" = field(default_factory=lambda: array("Q"))
    """Two numbers an item: offset, and length with the kind in its two lowest bits."""

    def add(self, place: ItemPlace) -> None:
        """Note one more item."""
        self.packed.extend((place.offset, place.length << 2 | place.kind))

    def replace(self, index: int, place: ItemPlace) -> None:
        """Say that an item is in another line now."""
        self.packed[2 * index] = place.offset
        self.packed[2 * index + 1] = place.length << 2 | place.kind

    def __len__(self) -> int:
        return len(self.packed) // 2

    def place(self, index: int) -> ItemPlace:
        """Return where an item is; 0 is the first one."""
        word = self.packed[2 * index + 1]
        return ItemPlace(self.packed[2 * index], word >> 2, ItemKind(word & 3))

    def places(self) -> Iterator[ItemPlace]:
        """Walk all items, oldest first."""
        return map(self.place, range(len(self)))


class EndAfterTurn(NamedTuple):
    """An item of a turn that need not be the last one is complete, in another line."""

    turn_id: str
    item_id: str
    place: ItemPlace


@dataclass(slots=True)
class Outliner:
    """Adds lines up; `last` and `waiting` are all that it needs to go on later."""

    last: TurnOutline | None = None
    started: int = 0
    """Turns so far, dropped ones included."""
    waiting: list[ItemPlace] = field(default_factory=list)
    """Messages that are queued and not yet items."""
    changed: list[TurnOutline] = field(default_factory=list)
    """Turns that are new or different since the caller last took them away."""
    added: list[ItemPlace] = field(default_factory=list)
    """Items since the caller last took them away."""
    ended: list[EndAfterTurn] = field(default_factory=list)
    """For the caller to find the items, as they may be in turns that are not at hand here."""

    def feed(self, line: LogLine) -> None:
        """Take one more line into account."""
        match line.type:
            case "itemCompleted" | "itemLeftRunning":
                self._complete(ItemPlace(line.offset, len(line.content), item_kind(line.content)))
            case "turnStarted" | "turnCompleted" | "inputQueued" | "itemEnded":
                self._apply(line)
            case "inputTaken":
                self._take_input()

    def skip(self, line: LogLine) -> None:
        """Pass over a line that was dropped; numbers of turns are not given again."""
        self.started += line.type == "turnStarted"

    def _apply(self, line: LogLine) -> None:
        match parse_record(line.content):
            case TurnStarted() as record:
                if self.last is not None and self.last.status == "inProgress":
                    self._take_input()
                    self.last.status, self.last.completed_at_ms = "interrupted", record.at_ms
                    self._note(self.last)
                self.last = TurnOutline(self.started, record.turn_id, record.at_ms)
                self.started += 1
                self._note(self.last)
            case TurnCompleted() as record:
                self._take_input()
                self._close(record)
            case ItemEnded() as record:
                place = ItemPlace(line.offset, len(line.content), ItemKind.OTHER)
                self.ended.append(EndAfterTurn(record.turn_id, record.item.id, place))
            case InputQueued() as record if record.message is not None:
                place = ItemPlace(line.offset, len(line.content), ItemKind.QUEUED_USER)
                self.waiting.append(place)

    def _close(self, record: TurnCompleted) -> None:
        turn = self.last
        if turn is None or turn.status != "inProgress" or turn.id != record.turn_id:
            return
        turn.status, turn.error = record.status, record.error
        turn.completed_at_ms, turn.duration_ms = record.at_ms, record.duration_ms
        self._note(turn)

    def _take_input(self) -> None:
        for place in self.waiting:
            self._complete(place)
        self.waiting.clear()

    def _complete(self, place: ItemPlace) -> None:
        if self.last is not None:
            self.last.add(place)
            self.added.append(place)
            self._note(self.last)

    def find(self, turn_id: str) -> TurnOutline | None:
        """Return a turn that is at hand."""
        at_hand = [*self.changed, *([] if self.last is None else [self.last])]
        return next((turn for turn in reversed(at_hand) if turn.id == turn_id), None)

    def _note(self, turn: TurnOutline) -> None:
        if not self.changed or self.changed[-1] is not turn:
            self.changed.append(turn)


def item_kind(line: bytes) -> ItemKind:
    """Return the kind of the item in a line that adds one, by its head if that is ours."""
    head = _ITEM.search(line, 0, _HEAD_BYTES)
    if head is not None:
        name = head[1].decode()
    else:
        record = parse_record(line)
        name = ""
        if isinstance(record, ItemCompleted | ItemLeftRunning):
            name = getattr(record.item, "type", "")
    return {"userMessage": ItemKind.USER, "agentMessage": ItemKind.AGENT}.get(name, ItemKind.OTHER)
