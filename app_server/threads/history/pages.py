"""Pages of one thread's history: outlines from the index, items from the log. Blocks.

Nothing is loaded: the log is what there is, of a running thread too. A page ends early rather than
become longer than a message may be.
Source: docs/wire.md, "History and search".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Literal, Protocol, TypeAlias

from app_server.threads.log.outline import ItemKind, ItemPlace, TurnOutline
from protocol.cursors import InvalidCursor, parse_plain_cursor, render_plain_cursor
from protocol.turns.items import ThreadItem


@dataclass(frozen=True, slots=True)
class HistoryPlace:
    """Start of a page: a turn, or an item (`index` counts from 0)."""

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
    """Position at which a search in one thread resumes."""

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


MAX_PAGE_BYTES = 900_000
"""Bytes of the lines of all items of a page; a message to a client stays below 1 MiB."""

View: TypeAlias = Literal["notLoaded", "summary", "full"]


class AnchorNotFound(Exception):
    """The item to start beside is not in the turn that was named."""


@dataclass(frozen=True, slots=True)
class HistoryQuery:
    """Which page of a thread; `limit` is at least 1."""

    thread_id: str
    limit: int
    cursor: str | None = None
    ascending: bool = False


@dataclass(frozen=True, slots=True)
class PagedTurn:
    """A turn with as much of its items as was asked for and fits."""

    outline: TurnOutline
    view: View
    items: Sequence[ThreadItem]


@dataclass(frozen=True, slots=True)
class PagedItem:
    """An item, and where it stands."""

    turn: TurnOutline
    index: int
    item: ThreadItem
    size: int
    """Bytes of the line that holds it."""


@dataclass(frozen=True, slots=True)
class TurnsPage:
    """Turns in the order that was asked for; the cursors continue it in both directions."""

    turns: Sequence[PagedTurn]
    next_cursor: str | None
    backwards_cursor: str | None


@dataclass(frozen=True, slots=True)
class ItemsPage:
    """Items in the order that was asked for; the cursors continue it in both directions."""

    items: Sequence[PagedItem]
    next_cursor: str | None
    backwards_cursor: str | None


class HistoryReader(Protocol):
    """One thread's history, for the length of one request. Blocks."""

    @property
    def thread_id(self) -> str:
        """The thread's id."""

    @property
    def written_at_ms(self) -> int:
        """Unix milliseconds of its newest record."""

    def item(self, place: ItemPlace) -> ThreadItem | None:
        """Read an item; None if its line is damaged."""

    def turn(self, turn_id: str) -> TurnOutline | None:
        """Find a turn."""

    def walk(self, number: int | None, *, ascending: bool) -> Iterator[TurnOutline]:
        """Walk turns from a number on, itself included; None begins at the end or the beginning."""


def turns_page(reader: HistoryReader, query: HistoryQuery, view: View) -> TurnsPage:
    """Return a page of turns.

    Raises:
        InvalidCursor: the cursor was not given out by a page of turns of this thread.
    """
    thread_id, start = query.thread_id, None
    if query.cursor is not None:
        place = parse_place("turns", thread_id, query.cursor)
        step = 0 if place.included else 1 if query.ascending else -1
        start = place.number + step
    found = list(islice(reader.walk(start, ascending=query.ascending), query.limit + 1))
    turns: list[PagedTurn] = []
    left = MAX_PAGE_BYTES
    for outline in found[: query.limit]:
        shown, places = view, _places(outline, view)
        size = sum(place.length for place in places)
        if size > MAX_PAGE_BYTES:
            # No page could ever hold it: its items are read one by one.
            shown, places, size = "notLoaded", [], 0
        if size > left:
            break
        left -= size
        items = [item for item in map(reader.item, places) if item is not None]
        turns.append(PagedTurn(outline, shown, items))
    return TurnsPage(
        turns,
        next_cursor=_turn_cursor(thread_id, turns[-1].outline, included=False)
        if len(found) > len(turns)
        else None,
        backwards_cursor=_turn_cursor(thread_id, turns[0].outline, included=True)
        if turns
        else None,
    )


def newest_turn_cursor(reader: HistoryReader) -> str | None:
    """Return the cursor that begins with the newest turn, downwards."""
    newest = next(reader.walk(None, ascending=False), None)
    return None if newest is None else _turn_cursor(reader.thread_id, newest, included=True)


def items_page(reader: HistoryReader, query: HistoryQuery, turn_id: str | None) -> ItemsPage:
    """Return a page of items, of one turn or of all.

    Raises:
        InvalidCursor: the cursor was not given out by a page of items of this thread.
    """
    start = None
    if query.cursor is not None:
        start = parse_place("items", query.thread_id, query.cursor)
    places = _walk_items(reader, start, turn_id, ascending=query.ascending)
    return _items_page(reader, query, places)


def items_beside(
    reader: HistoryReader, query: HistoryQuery, turn_id: str, item_id: str
) -> ItemsPage:
    """Return the items of a turn that come after one of them, or before it if descending.

    Raises:
        AnchorNotFound: the turn has no such item.
    """
    turn = reader.turn(turn_id)
    for index, place in enumerate(() if turn is None else turn.places()):
        item = reader.item(place)
        if turn is not None and _id(item) == item_id:
            start = HistoryPlace("items", query.thread_id, turn.number, index)
            places = _walk_items(reader, start, turn_id, ascending=query.ascending)
            return _items_page(reader, query, places)
    raise AnchorNotFound(item_id)


def items_by_id(reader: HistoryReader, turn_id: str, ids: Sequence[str]) -> list[PagedItem]:
    """Return the items of a turn that have one of these ids, in their order in the log."""
    turn = reader.turn(turn_id)
    if turn is None:
        return []
    found = []
    for index, place in enumerate(turn.places()):
        item = reader.item(place)
        if item is not None and _id(item) in ids:
            found.append(PagedItem(turn, index, item, place.length))
    return found


def newest_item_cursor(reader: HistoryReader) -> str | None:
    """Return the cursor that begins with the newest item, downwards."""
    for turn, index in _walk_items(reader, None, None, ascending=False):
        return HistoryPlace("items", reader.thread_id, turn.number, index, included=True).render()
    return None


def _items_page(
    reader: HistoryReader, query: HistoryQuery, places: Iterator[tuple[TurnOutline, int]]
) -> ItemsPage:
    items: list[PagedItem] = []
    left, more = MAX_PAGE_BYTES, False
    for turn, index in places:
        place = turn.place(index)
        more = len(items) == query.limit or (bool(items) and place.length > left)
        if more:
            break
        item = reader.item(place)
        if item is not None:
            left -= place.length
            items.append(PagedItem(turn, index, item, place.length))
    thread_id = query.thread_id
    return ItemsPage(
        items,
        next_cursor=_item_cursor(thread_id, items[-1], included=False) if more else None,
        backwards_cursor=_item_cursor(thread_id, items[0], included=True) if items else None,
    )


def _walk_items(
    reader: HistoryReader, start: HistoryPlace | None, turn_id: str | None, *, ascending: bool
) -> Iterator[tuple[TurnOutline, int]]:
    if turn_id is None:
        turns = reader.walk(None if start is None else start.number, ascending=ascending)
    else:
        turns = (turn for turn in [reader.turn(turn_id)] if turn is not None)
    for turn in turns:
        order = range(len(turn)) if ascending else range(len(turn) - 1, -1, -1)
        for index in order:
            if start is None or _is_due(start, turn.number, index, ascending=ascending):
                yield turn, index


def _is_due(start: HistoryPlace, number: int, index: int, *, ascending: bool) -> bool:
    here, there = (number, index), (start.number, start.index)
    return (start.included and here == there) or (here > there if ascending else here < there)


def _places(turn: TurnOutline, view: View) -> list[ItemPlace]:
    if view == "notLoaded":
        return []
    places = list(turn.places())
    if view == "full":
        return places
    asked = [place for place in places if place.kind in (ItemKind.USER, ItemKind.QUEUED_USER)]
    answered = [place for place in places if place.kind is ItemKind.AGENT]
    return [*asked[:1], *answered[-1:]]


def _id(item: ThreadItem | None) -> str | None:
    return getattr(item, "id", None)


def _turn_cursor(thread_id: str, turn: TurnOutline, *, included: bool) -> str:
    return HistoryPlace("turns", thread_id, turn.number, included=included).render()


def _item_cursor(thread_id: str, item: PagedItem, *, included: bool) -> str:
    return HistoryPlace("items", thread_id, item.turn.number, item.index, included).render()


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
