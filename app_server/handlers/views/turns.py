"""Turns as the wire shows them: from memory, from the log, and from both, as far as they fit.

Below them stands the first page of a thread's history, as answers of other methods have it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from app_server.handlers.views.pages import page_size
from app_server.threads.history.pages import (
    HistoryQuery,
    HistoryReader,
    PagedTurn,
    View,
    newest_item_cursor,
    newest_turn_cursor,
    turns_page,
)
from app_server.threads.log.outline import TurnOutline
from app_server.threads.log.state import ThreadState, TurnState
from protocol.threads.start import ThreadResumeInitialTurnsPageParams, TurnsPage
from protocol.turns.items import ThreadItem
from protocol.turns.turn import Turn

MAX_TURNS_CHARS = 900_000
"""Characters of all turns of one answer; a message to a client stays below 1 MiB."""
TURN_CHARS = 300
"""Estimated characters of a turn without items."""


def turns_of_state(state: ThreadState, open_items: Sequence[ThreadItem] = ()) -> list[Turn]:
    """Show all turns, oldest first, as far as they fit into one message.

    `open_items` are those of the running turn that are not complete.

    The newest keep their items; older ones are there without items, the oldest may be missing.
    """
    wires = [turn_of_state(turn) for turn in state.turns]
    if wires and state.open_turn is not None:
        wires[-1].items.extend(open_items)
    return _fitting(wires)


def turns_with_items(turns: Sequence[Turn], newer: Mapping[str, ThreadItem]) -> list[Turn]:
    """Put newer versions of items, by id, in the place of older ones, as far as it fits."""
    if not newer:
        return list(turns)
    return _fitting(
        [
            turn.model_copy(
                update={"items": [newer.get(getattr(item, "id", ""), item) for item in turn.items]}
            )
            for turn in turns
        ]
    )


def turns_with_log(newest: Sequence[Turn], logged: Sequence[Turn]) -> list[Turn]:
    """Put together what memory and the log have of a loaded thread's turns, as far as it fits.

    Memory is ahead of the log that was read a moment ago, and has forgotten some of it. A turn that
    is over is as the log has it; of the running one the log's items come first.
    """
    known = {turn.id: turn for turn in logged}
    begun = {turn.id for turn in newest}
    turns = [turn for turn in logged if turn.id not in begun]
    for turn in newest:
        before = known.get(turn.id)
        if before is not None and before.status != "inProgress":
            turns.append(before)
        elif before is None or before.items_view != "full":
            turns.append(turn)
        else:
            ids = {getattr(item, "id", None) for item in before.items}
            rest = [item for item in turn.items if getattr(item, "id", None) not in ids]
            turns.append(turn.model_copy(update={"items": [*before.items, *rest]}))
    return _fitting(turns)


def _fitting(turns: Sequence[Turn]) -> list[Turn]:
    shown: list[Turn] = []
    left = MAX_TURNS_CHARS
    for turn in reversed(turns):
        wire = turn
        size = len(wire.model_dump_json())
        if size > left:
            wire = wire.model_copy(update={"items": [], "items_view": "notLoaded"})
            size = len(wire.model_dump_json())
        if size > left:
            break
        left -= size
        shown.append(wire)
    return shown[::-1]


def turn_of_state(turn: TurnState, open_items: Sequence[ThreadItem] = ()) -> Turn:
    """Show a turn, with open items behind the completed ones."""
    return _turn(turn, [*turn.items, *open_items])


def _turn(turn: TurnState | TurnOutline, items: list[ThreadItem]) -> Turn:
    return Turn(
        id=turn.id,
        root_turn_id=turn.id,
        items=items,
        status=turn.status,
        error=turn.error,
        started_at=turn.started_at_ms // 1000,
        completed_at=None if turn.completed_at_ms is None else turn.completed_at_ms // 1000,
        duration_ms=turn.duration_ms,
    )


def turns_of_log(reader: HistoryReader, loaded: bool) -> list[Turn]:
    """Show all turns of a log as `turns_of_state` does; none can be running if not `loaded`."""
    shown: list[Turn] = []
    left = MAX_TURNS_CHARS
    for outline in reader.walk(None, ascending=False):
        places = list(outline.places())
        size = TURN_CHARS + sum(place.length for place in places)
        fits = size <= left
        left -= size if fits else TURN_CHARS
        if left < 0:
            break
        items = [item for item in map(reader.item, places) if item is not None] if fits else []
        paged = PagedTurn(outline, "full" if fits else "notLoaded", items)
        shown.append(turn_of_page(paged, None if loaded else reader.written_at_ms))
    return shown[::-1]


def turn_of_page(paged: PagedTurn, given_up_at_ms: int | None) -> Turn:
    """Show a turn; one that never ended counts as interrupted if `given_up_at_ms` is given."""
    turn = _turn(paged.outline, list(paged.items))
    turn.items_view = paged.view
    if turn.status == "inProgress" and given_up_at_ms is not None:
        turn.status, turn.completed_at = "interrupted", given_up_at_ms // 1000
    return turn


def started_turn(turn_id: str) -> Turn:
    """Show a turn that was accepted a moment ago."""
    return Turn(
        id=turn_id, root_turn_id=turn_id, items=[], items_view="notLoaded", status="inProgress"
    )


def wire_page(
    reader: HistoryReader, query: HistoryQuery, view: View, loaded: bool
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
    reader: HistoryReader, asked: ThreadResumeInitialTurnsPageParams | None
) -> dict[str, Any]:
    """Collect the cursors that begin with the newest turn and item of a loaded thread.

    If it was asked for, a page of turns comes with them.
    """
    page = None
    if asked is not None:
        ascending = asked.sort_direction == "asc"
        query = HistoryQuery(reader.thread_id, page_size(asked.limit), None, ascending)
        page = TurnsPage(**wire_page(reader, query, asked.items_view or "summary", True))
    return {
        "initial_turns_page": page,
        "turns_backwards_cursor": newest_turn_cursor(reader),
        "items_backwards_cursor": newest_item_cursor(reader),
    }
