"""One thread's turns and items as a single line of entries. Blocks.

A page ends with the entry that the cursor names (the newest one at first) and is in the order of
the log; the next page holds older entries.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from app_server.threads.history.cursors import HistoryPlace, parse_place
from app_server.threads.history.pages import MAX_PAGE_BYTES, HistoryQuery, HistoryReader
from app_server.threads.log.outline import TurnOutline
from protocol.turns.items import ThreadItem

_ENTRIES_A_TURN = 1 << 24


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """The start of a turn, one of its items, or its end."""

    kind: Literal["started", "item", "completed"]
    turn: TurnOutline
    index: int
    """0 for the start; items count from 1."""
    item: ThreadItem | None = None

    @property
    def position(self) -> int:
        """Orders the entries of a thread."""
        return self.turn.number * _ENTRIES_A_TURN + self.index


def timeline_page(
    reader: HistoryReader, query: HistoryQuery
) -> tuple[list[TimelineEntry], str | None]:
    """Return a page of entries and the cursor of the next one.

    Raises:
        InvalidCursor: the cursor was not given out by a page of this thread's timeline.
    """
    start = None
    if query.cursor is not None:
        start = parse_place("timeline", query.thread_id, query.cursor)
    page: list[TimelineEntry] = []
    left, more = MAX_PAGE_BYTES, False
    for entry in _backwards(reader, start):
        place = entry.turn.place(entry.index - 1) if entry.kind == "item" else None
        size = 0 if place is None else place.length
        more = len(page) == query.limit or (bool(page) and size > left)
        if more:
            break
        item = None if place is None else reader.item(place)
        if place is None or item is not None:
            left -= size
            page.append(TimelineEntry(entry.kind, entry.turn, entry.index, item))
    cursor = None
    if more:
        oldest = page[-1]
        place_of = HistoryPlace("timeline", query.thread_id, oldest.turn.number, oldest.index)
        cursor = place_of.render()
    return page[::-1], cursor


def _backwards(reader: HistoryReader, start: HistoryPlace | None) -> Iterator[TimelineEntry]:
    for turn in reader.walk(None if start is None else start.number, ascending=False):
        before = None
        if start is not None and turn.number == start.number:
            before = start.index
        for entry in _entries_of(turn):
            if before is None or entry.index < before:
                yield entry


def _entries_of(turn: TurnOutline) -> Iterator[TimelineEntry]:
    if turn.status != "inProgress":
        yield TimelineEntry("completed", turn, len(turn) + 1)
    for index in range(len(turn), 0, -1):
        yield TimelineEntry("item", turn, index)
    yield TimelineEntry("started", turn, 0)
