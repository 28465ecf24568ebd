"""Bring a client up to date with a thread whose owner was lost.

`DeliveredTurn` records the events of a thread's newest turn as they pass. After the link was lost,
the newest turns of the log say which ones the client was not sent. The next owner may be in the
middle of a turn meanwhile: events from there are sent once, too.
Source: docs/scale.md, "When an owner dies".
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from protocol.model import JsonObject, WireModel
from protocol.turns.items import ItemCompletedNotification
from protocol.turns.notifications import TurnCompletedNotification, TurnStartedNotification
from protocol.turns.turn import Turn

NEWEST_TURNS = 5
"""Turns that a client is brought up to date with."""

TURN_STARTED = "turn/started"
TURN_COMPLETED = "turn/completed"
ITEM_STARTED = "item/started"
ITEM_COMPLETED = "item/completed"

_WRITTEN_IN_PIECES = ("agentMessage", "plan", "reasoning")
"""Types of items that grow without a status to say so."""


class TooMuchMissed(Exception):
    """More turns began and ended than a client is brought up to date with."""


class Mark(NamedTuple):
    """Name of one event of a turn or an item; each comes once."""

    method: str
    turn_id: str
    item_id: str = ""


@dataclass(slots=True)
class DeliveredTurn:
    """Record of the events of a thread's newest turn that a client was sent."""

    turn_id: str | None = None
    """None: there was no turn yet."""
    is_open: bool = False
    completed: set[str] = field(default_factory=set)
    """Ids of the items of this turn that it has seen completed."""
    early: dict[Mark, None] | None = None
    """Events that came before those that it has missed; None: it has missed none."""
    ahead: set[Mark] = field(default_factory=set)
    """Events that it was told by the log, and that may still come."""

    @classmethod
    def from_answer(cls, turns: Sequence[JsonObject]) -> Self:
        """Record the turns of an answer as sent; they are JSON, the newest at the end."""
        if not turns:
            return cls()
        turn = turns[-1]
        *before, last = turn["items"] or [{}]
        completed = {item["id"] for item in before if item.get("status") != "inProgress"}
        if last.get("status") != "inProgress" and last.get("type") not in _WRITTEN_IN_PIECES:
            completed |= {last["id"]} if last else set()
        return cls(turn["id"], turn["status"] == "inProgress", completed)

    def note(self, mark: Mark) -> bool:
        """Note an event that has come; whether the client has yet to be told."""
        if mark in self.ahead:
            self.ahead.discard(mark)
            return False
        if mark.method == ITEM_STARTED:
            return mark._replace(method=ITEM_COMPLETED) not in self.ahead
        if self.early is not None:
            self.early[mark] = None
            return True
        if mark.method == TURN_STARTED:
            self.ahead.clear()
        self._apply(mark)
        return True

    def _apply(self, mark: Mark) -> None:
        match mark.method:
            case "turn/started":
                self.turn_id, self.is_open, self.completed = mark.turn_id, True, set()
            case "turn/completed":
                self.turn_id, self.is_open, self.completed = mark.turn_id, False, set()
            # What a turn left running ends in a later one.
            case "item/completed" if mark.turn_id == self.turn_id:
                self.completed.add(mark.item_id)

    def brought_up(self, thread_id: str, turns: Sequence[Turn]) -> Iterator[WireModel]:
        """Give the events that the client has yet to be told; `turns` are the newest, in the log.

        `turns` begin with the newest one; NEWEST_TURNS of them are asked for.

        Raises:
            TooMuchMissed
        """
        early, told = self.early or {}, set()
        for event in list(missed(thread_id, self, turns)):
            mark = _mark_of(event)
            told.add(mark)
            self._apply(mark)
            if mark not in early:
                self.ahead.add(mark)
                yield event
        for mark in early:
            if mark not in told:
                self._apply(mark)
        self.early = None


def _mark_of(event: WireModel) -> Mark:
    match event:
        case TurnStartedNotification():
            return Mark(TURN_STARTED, event.turn.id)
        case TurnCompletedNotification():
            return Mark(TURN_COMPLETED, event.turn.id)
        case ItemCompletedNotification():
            return Mark(ITEM_COMPLETED, event.turn_id, getattr(event.item, "id", ""))
    raise TypeError(type(event))


def missed(thread_id: str, seen: DeliveredTurn, turns: Sequence[Turn]) -> Iterator[WireModel]:
    """Give the events that bring a client up to date; see DeliveredTurn.brought_up.

    Of an item that a client has seen begin, it is sent the end alone, as of one that it has not.
    """
    unseen: list[Turn] = []
    for turn in turns:
        if turn.id == seen.turn_id:
            if seen.is_open:
                yield from _rest(thread_id, turn, seen.completed)
            break
        unseen.append(turn)
    else:
        if len(turns) >= NEWEST_TURNS:
            raise TooMuchMissed
        if seen.turn_id is not None:
            # The thread was taken back to before it, and says so itself.
            return
    for turn in reversed(unseen):
        started = turn.model_copy(
            update={"items": [], "status": "inProgress", "completed_at": None, "error": None}
        )
        yield TurnStartedNotification(thread_id=thread_id, turn=started)
        yield from _rest(thread_id, turn, ())


def _rest(thread_id: str, turn: Turn, completed: Collection[str]) -> Iterator[WireModel]:
    # What is in the log of a turn that runs is complete, too.
    for item in turn.items:
        if getattr(item, "id", None) not in completed:
            at_ms = getattr(item, "completed_at_ms", None)
            if at_ms is None:
                at_ms = (turn.completed_at or turn.started_at or 0) * 1000
            yield ItemCompletedNotification(
                thread_id=thread_id, turn_id=turn.id, item=item, completed_at_ms=at_ms
            )
    if turn.status != "inProgress":
        yield TurnCompletedNotification(
            thread_id=thread_id,
            turn=turn.model_copy(update={"items": [], "items_view": "notLoaded"}),
        )
