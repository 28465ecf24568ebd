"""Searches in what was said: the query, its page, and the matches in one thread. No I/O.

Source: docs/wire.md, "History and search".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from app_server.threads.history.pages import (
    HistoryPlace,
    HistoryReader,
    OccurrencePlace,
    parse_occurrence,
)
from app_server.threads.history.texts import Excerpt, excerpt, matches, text_of
from app_server.threads.log.outline import ItemKind, TurnOutline
from app_server.threads.rows import SortKey
from protocol.cursors import InvalidCursor, parse_plain_cursor, render_plain_cursor
from protocol.turns.items import ThreadItem


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """Which threads, in which order; `limit` is at least 1, an empty sequence no restriction."""

    term: str
    limit: int
    cursor: str | None = None
    sort_key: SortKey = "created_at_ms"
    ascending: bool = False
    archived: bool = False
    source_kinds: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """A thread that matches, and the text around its oldest match."""

    thread_id: str
    snippet: str


@dataclass(frozen=True, slots=True)
class SearchPage:
    """One page; the cursors continue it in both directions."""

    found: Sequence[Found]
    next_cursor: str | None
    backwards_cursor: str | None


def search_cursor(query: SearchQuery, row: Sequence[Any]) -> str:
    """Return the cursor at a thread; `row` begins with its id and the value that is sorted by."""
    return render_plain_cursor("search", query.sort_key, row[1], row[0])


def parse_search_cursor(query: SearchQuery, cursor: str) -> tuple[int, str]:
    """Return the sorted value and the id of the thread at a cursor.

    Raises:
        InvalidCursor: the cursor was not given out by a search in this order.
    """
    match parse_plain_cursor(cursor):
        case ["search", sort_key, int(at_ms), str(thread_id)] if (
            sort_key == query.sort_key and abs(at_ms) < 1 << 62
        ):
            return at_ms, thread_id
    raise InvalidCursor(cursor)


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
