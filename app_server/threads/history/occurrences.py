"""Where in one thread's messages a term occurs. Blocks.

Only messages are read, by their places in the log; a page is found in one walk from its cursor on.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from app_server.threads.history.cursors import HistoryPlace, OccurrencePlace, parse_occurrence
from app_server.threads.history.matching import Excerpt, excerpt, matches
from app_server.threads.history.messages import text_of
from app_server.threads.history.pages import HistoryReader
from app_server.threads.log.outline import ItemKind, TurnOutline
from protocol.turns.items import ThreadItem


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One match, and where its turn is paged."""

    turn_id: str
    item_id: str
    excerpt: Excerpt
    turn_cursor: str


def occurrences_page(
    reader: HistoryReader, term: str, limit: int, cursor: str | None
) -> tuple[list[Occurrence], str | None]:
    """Return matches, oldest message first, and the cursor of the next page.

    Raises:
        InvalidCursor: the cursor was not given out by a search for this term in this thread.
    """
    start = OccurrencePlace(reader.thread_id, term, 0, 0, 0)
    if cursor is not None:
        start = parse_occurrence(reader.thread_id, term, cursor)
    found: list[Occurrence] = []
    for turn, index, item in _messages(reader, start):
        text, item_id = text_of(item), getattr(item, "id", "")
        here = (turn.number, index) == (start.number, start.index)
        for number, (first, end) in enumerate(matches(text, term.casefold())):
            if here and number < start.occurrence:
                continue
            if len(found) == limit:
                place = OccurrencePlace(reader.thread_id, term, turn.number, index, number)
                return found, place.render()
            place_of_turn = HistoryPlace("turns", reader.thread_id, turn.number, included=True)
            found.append(
                Occurrence(turn.id, item_id, excerpt(text, first, end), place_of_turn.render())
            )
    return found, None


def _messages(
    reader: HistoryReader, start: OccurrencePlace
) -> Iterator[tuple[TurnOutline, int, ThreadItem | None]]:
    for turn in reader.walk(start.number, ascending=True):
        for index, place in enumerate(turn.places()):
            due = (turn.number, index) >= (start.number, start.index)
            if due and place.kind is not ItemKind.OTHER:
                yield turn, index, reader.item(place)
