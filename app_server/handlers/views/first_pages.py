"""First page of a thread's history, as answers of other methods have it."""

from typing import Any

from app_server.handlers.views.pages import page_size
from app_server.handlers.views.turns import turn_of_page
from app_server.threads.history.pages import (
    HistoryQuery,
    HistoryReader,
    View,
    newest_item_cursor,
    newest_turn_cursor,
    turns_page,
)
from protocol.threads.start import ThreadResumeInitialTurnsPageParams, TurnsPage


def wire_page(
    reader: HistoryReader, query: HistoryQuery, view: View, *, loaded: bool
) -> dict[str, Any]:
    """Collect a page of turns; in a thread that is not `loaded` no turn can be running."""
    page = turns_page(reader, query, view)
    given_up_at_ms = None if loaded else reader.written_at_ms
    return {
        "data": [turn_of_page(turn, given_up_at_ms) for turn in page.turns],
        "next_cursor": page.next_cursor,
        "backwards_cursor": page.backwards_cursor,
    }


def first_pages(
    asked: ThreadResumeInitialTurnsPageParams | None, reader: HistoryReader
) -> dict[str, Any]:
    """Collect the cursors that begin with the newest turn and item of a loaded thread.

    If it was asked for, a page of turns comes with them.
    """
    page = None
    if asked is not None:
        ascending = asked.sort_direction == "asc"
        query = HistoryQuery(reader.thread_id, page_size(asked.limit), None, ascending)
        page = TurnsPage(**wire_page(reader, query, asked.items_view or "summary", loaded=True))
    return {
        "initial_turns_page": page,
        "turns_backwards_cursor": newest_turn_cursor(reader),
        "items_backwards_cursor": newest_item_cursor(reader),
    }
