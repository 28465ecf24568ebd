"""Places in a thread's history, as clients carry them around. No I/O.

A place names a turn by its number, and an item by its index there. Both never change, as a log only
grows; so a cursor stays valid while turns are added, and after a revert shows what is left.
"""

from dataclasses import dataclass
from typing import Literal

from protocol.cursors import InvalidCursor, parse_plain_cursor, render_plain_cursor


@dataclass(frozen=True, slots=True)
class HistoryPlace:
    """Where a page begins: at a turn, or at an item (`index` counts from 0)."""

    kind: Literal["turns", "items", "timeline"]
    thread_id: str
    number: int
    index: int = 0
    included: bool = False
    """Whether the page begins with what is named here, instead of behind it."""

    def render(self) -> str:
        """Write a cursor."""
        place = self.number, self.index, self.included
        return render_plain_cursor(self.kind, self.thread_id, *place)


def parse_place(
    kind: Literal["turns", "items", "timeline"], thread_id: str, cursor: str
) -> HistoryPlace:
    """Read a cursor of this kind for this thread.

    Raises:
        InvalidCursor: no page of ours has given it out.
    """
    match parse_plain_cursor(cursor):
        case [found, thread, int(number), int(index), bool(included)] if (
            found == kind and thread == thread_id and _is_count(number) and _is_count(index)
        ):
            return HistoryPlace(kind, thread_id, number, index, included)
    raise InvalidCursor(cursor)


@dataclass(frozen=True, slots=True)
class OccurrencePlace:
    """Where a search in one thread goes on."""

    thread_id: str
    term: str
    number: int
    index: int
    occurrence: int
    """Matches of the item that were shown already."""

    def render(self) -> str:
        """Write a cursor."""
        place = self.number, self.index, self.occurrence
        return render_plain_cursor("occurrences", self.thread_id, self.term, *place)


def parse_occurrence(thread_id: str, term: str, cursor: str) -> OccurrencePlace:
    """Read a cursor of a search for `term` in this thread.

    Raises:
        InvalidCursor: no such search has given it out.
    """
    match parse_plain_cursor(cursor):
        case ["occurrences", thread, words, int(number), int(index), int(occurrence)] if (
            thread == thread_id
            and words == term
            and all(map(_is_count, (number, index, occurrence)))
        ):
            return OccurrencePlace(thread_id, term, number, index, occurrence)
    raise InvalidCursor(cursor)


def _is_count(number: int) -> bool:
    return 0 <= number < 1 << 62 and not isinstance(number, bool)
