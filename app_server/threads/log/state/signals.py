"""Signals in a thread's log, and the stage of each. No I/O.

Every stage that a receipt shows from `inHistory` on is derived from the log, live and after a crash
alike, so a receipt never says more than what is written.
Source: docs/signals.md, "Stages".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from protocol.log.rollout import HistoryAppended, HistoryCompacted, SignalMark
from protocol.model import JsonObject

MAX_REMEMBERED = 1024
"""Signals a thread remembers; the oldest that are over are forgotten first."""

SignalKey: TypeAlias = tuple[str, str]
"""Source and id."""

PlaceStage: TypeAlias = Literal["queued", "visible", "seen", "answered", "recalled"]


@dataclass(slots=True)
class SignalState:
    """Stage of one signal."""

    item_id: str
    woke: bool
    stage: PlaceStage
    item: JsonObject | None
    """The item itself, until a model has seen it."""
    turn_id: str | None = None
    """The turn it began, then the turn whose model saw it."""
    trouble: Literal["turnFailed", "turnInterrupted"] | None = None
    """End status of the turn that should have answered it."""

    @property
    def is_over(self) -> bool:
        """Whether nothing more can become of it."""
        return self.stage in ("answered", "recalled")


@dataclass(slots=True)
class SignalStates:
    """The signals of one thread, in the order in which they came."""

    _places: dict[SignalKey, SignalState] = field(default_factory=dict)

    def __iter__(self) -> Iterator[tuple[SignalKey, SignalState]]:
        return iter(self._places.items())

    def find(self, key: SignalKey) -> SignalState | None:
        """Return where a signal stands, or None when the log does not have it."""
        return self._places.get(key)

    def history_grew(self, record: HistoryAppended, turn_id: str | None) -> None:
        """Take items in; output of a model proves that it saw all that was visible."""
        for item, mark in zip(record.items, record.signals or (), strict=False):
            self._add(mark, SignalState(mark.item_id, mark.woke, "visible", item))
            if mark.woke:
                self._places[mark.source, mark.id].turn_id = turn_id
        if turn_id is not None and any(_is_output(item) for item in record.items):
            self._advance("visible", "seen", turn_id)

    def queued(self, mark: SignalMark, item: JsonObject) -> None:
        """Take in a signal that waits for the next request of the running turn."""
        self._add(mark, SignalState(mark.item_id, mark.woke, "queued", item))

    def input_taken(self) -> None:
        """Mark queued signals as visible to the model."""
        self._advance("queued", "visible")

    def turn_ended(self, turn_id: str, end: Literal["completed", "interrupted", "failed"]) -> None:
        """Note how a turn ended for the signals that its model saw, or that had begun it."""
        for place in self._places.values():
            if place.stage == "seen" and end == "completed":
                place.stage, place.turn_id, place.trouble = "answered", turn_id, None
            elif place.turn_id == turn_id and not place.is_over and end != "completed":
                place.trouble = "turnFailed" if end == "failed" else "turnInterrupted"

    def history_compacted(self, record: HistoryCompacted) -> None:
        """Note that the model which summarized the history has seen what is no longer in it."""
        for place in self._places.values():
            if place.stage == "visible" and place.item not in record.items:
                place.stage, place.turn_id, place.item = "seen", record.turn_id, None

    def recall(self, source: str, signal_id: str) -> JsonObject | None:
        """Note that a signal was taken back, and return the item to take out."""
        place = self._places.get((source, signal_id))
        if place is None:
            return None
        item, place.item, place.stage = place.item, None, "recalled"
        return item

    def dropped(self, marks: Sequence[SignalMark]) -> None:
        """Note that signals were dropped together with turns."""
        for mark in marks:
            self._add(mark, SignalState(mark.item_id, mark.woke, "recalled", None))

    def missing_in(self, other: "SignalStates") -> list[SignalMark]:
        """Return the signals of this book that are not over and that another one does not have."""
        return [
            SignalMark(source=source, id=signal_id, item_id=place.item_id, woke=place.woke)
            for (source, signal_id), place in self
            if not place.is_over and other.find((source, signal_id)) is None
        ]

    def _add(self, mark: SignalMark, place: SignalState) -> None:
        self._places[mark.source, mark.id] = place
        if len(self._places) > MAX_REMEMBERED:
            over = next((key for key, old in self._places.items() if old.is_over), None)
            if over is not None:
                del self._places[over]

    def _advance(self, before: PlaceStage, after: PlaceStage, turn_id: str | None = None) -> None:
        for place in self._places.values():
            if place.stage == before:
                place.stage = after
                if after == "seen":
                    place.turn_id, place.item, place.trouble = turn_id, None, None


def _is_output(item: JsonObject) -> bool:
    """Whether a model said this, and not a user, a tool or this server."""
    kind = str(item.get("type", "message"))
    if kind == "message":
        return item.get("role") == "assistant"
    return not kind.endswith("_output")
