"""thread/turns, items, timeline: a thread's history in pages; thread/search: finding what was said.

Nothing is loaded for it; of a running thread it shows what is in the log so far.
Source: docs/wire.md, "History and search".
"""

from collections.abc import Callable, Sequence
from typing import TypeVar, TypeVarTuple

from app_server.handlers.errors import (
    cursor_failures,
    not_loaded,
    thread_failures,
)
from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.threads.lists import SORT_KEYS
from app_server.handlers.threads.shown import status_of
from app_server.handlers.threads.stored import change_thread, is_written_elsewhere
from app_server.handlers.views.pages import page_size
from app_server.handlers.views.threads import thread_of_row
from app_server.handlers.views.turns import wire_page
from app_server.sessions.registry import Sessions
from app_server.threads.history.pages import (
    MAX_PAGE_BYTES,
    AnchorNotFound,
    HistoryQuery,
    HistoryReader,
    ItemsPage,
    PagedItem,
    TimelineEntry,
    items_beside,
    items_by_id,
    items_page,
    timeline_page,
)
from app_server.threads.history.search import Occurrence, SearchQuery, occurrences_page
from app_server.threads.log.outline import TurnOutline
from app_server.threads.log.state import ThreadState, initial_read_state, new_revision
from app_server.threads.organization import FilingState
from app_server.threads.rows import ThreadRow
from protocol.jsonrpc.errors import invalid_member, invalid_params, invalid_request
from protocol.log.metadata import (
    ReadStateChanged,
)
from protocol.log.rollout import Record
from protocol.threads.history import (
    ItemThreadItemsListAnchor,
    ItemThreadTimelineEntry,
    ThreadItemEntry,
    ThreadItemOutputDeferral,
    ThreadItemsListParams,
    ThreadItemsListResponse,
    ThreadItemsReadParams,
    ThreadItemsReadResponse,
    ThreadReadStateUpdateParams,
    ThreadReadStateUpdateResponse,
    ThreadSearchOccurrence,
    ThreadSearchOccurrencesParams,
    ThreadSearchOccurrencesResponse,
    ThreadSearchParams,
    ThreadSearchResponse,
    ThreadSearchResult,
    ThreadSearchTextRange,
    ThreadTimelineEntry,
    ThreadTimelineListParams,
    ThreadTimelineListResponse,
    ThreadTurnsListParams,
    ThreadTurnsListResponse,
    TurnCompletedThreadTimelineEntry,
    TurnStartedThreadTimelineEntry,
)
from protocol.threads.notifications import ThreadReadStateChangedNotification
from protocol.threads.thread import Thread, ThreadStartThreadUnreadPosition
from protocol.turns.items import McpToolCallThreadItem, ThreadItem

MAX_IDS = 100
"""Items that one `thread/items/read` may ask for."""

Answer = TypeVar("Answer")
Arguments = TypeVarTuple("Arguments")


@serves("thread/turns/list")
async def list_turns(
    context: RequestContext, params: ThreadTurnsListParams
) -> ThreadTurnsListResponse:
    """Page through turns, newest first unless asked otherwise."""
    query = HistoryQuery(
        params.thread_id,
        page_size(params.limit),
        params.cursor,
        ascending=params.sort_direction == "asc",
    )
    view = params.items_view or "summary"
    loaded = context.services.sessions.find(params.thread_id) is not None
    page = await _ask(context, params.thread_id, wire_page, query, view, loaded)
    if not loaded and any(turn.status == "interrupted" for turn in page["data"]):
        with thread_failures(params.thread_id):
            runs = await is_written_elsewhere(context.services, params.thread_id)
        if runs:
            page = await _ask(context, params.thread_id, wire_page, query, view, True)
    return ThreadTurnsListResponse(**page)


@serves("thread/items/list")
async def list_items(
    context: RequestContext, params: ThreadItemsListParams
) -> ThreadItemsListResponse:
    """Page through items, oldest first unless asked otherwise."""
    page = await _items(context, params)
    deferral = params.defer_output if params.turn_id is not None else None
    return ThreadItemsListResponse(
        data=[listed_entry(entry, deferral) for entry in page.items],
        next_cursor=page.next_cursor,
        backwards_cursor=page.backwards_cursor,
    )


async def _items(context: RequestContext, params: ThreadItemsListParams) -> ItemsPage:
    anchor = params.cursor if isinstance(params.cursor, ItemThreadItemsListAnchor) else None
    query = HistoryQuery(
        params.thread_id,
        page_size(params.limit),
        params.cursor if isinstance(params.cursor, str) else None,
        ascending=params.sort_direction != "desc",
    )
    if anchor is None:
        return await _ask(context, params.thread_id, items_page, query, params.turn_id)
    if params.turn_id is None:
        raise invalid_params(
            "turnId is required when cursor is an item anchor",
            field="turnId",
            rule="is required when `cursor` is an item",
        )
    return await _ask(
        context, params.thread_id, items_beside, query, params.turn_id, anchor.item_id
    )


@serves("thread/items/read")
async def read_items(
    context: RequestContext, params: ThreadItemsReadParams
) -> ThreadItemsReadResponse:
    """Read some items of one turn in full."""
    if not 1 <= len(params.item_ids) <= MAX_IDS:
        raise invalid_request(f"itemIds must contain 1 to {MAX_IDS} IDs", "invalidParams")
    found = await _ask(context, params.thread_id, items_by_id, params.turn_id, params.item_ids)
    return ThreadItemsReadResponse(data=[item_entry(entry) for entry in found])


@serves("thread/timeline/list")
async def list_timeline(
    context: RequestContext, params: ThreadTimelineListParams
) -> ThreadTimelineListResponse:
    """Page backwards through turns and items; each page is in the order of the log."""
    query = HistoryQuery(params.thread_id, page_size(params.limit), params.cursor)
    entries, cursor = await _ask(context, params.thread_id, timeline_page, query)
    return ThreadTimelineListResponse(
        data=[timeline_entry(entry) for entry in entries], next_cursor=cursor
    )


async def _ask(
    context: RequestContext,
    thread_id: str,
    question: Callable[[HistoryReader, *Arguments], Answer],
    *arguments: *Arguments,
) -> Answer:
    refuse_ephemeral(context.services.sessions, thread_id, context.method)
    with thread_failures(thread_id, not_loaded(thread_id)), cursor_failures():
        try:
            return await context.services.store.history.ask(thread_id, question, *arguments)
        except AnchorNotFound:
            raise invalid_params(
                "cursor.itemId does not identify an item in the requested history scope",
                field="cursor.itemId",
                rule="must be an item of the turn",
            ) from None


def refuse_ephemeral(sessions: Sessions, thread_id: str, method: str) -> None:
    """Refuse a method that needs a log for a thread that has none."""
    session = sessions.find(thread_id)
    if session is not None and session.log.ephemeral:
        raise invalid_request(
            f"ephemeral threads do not support {method}", "ephemeralThread", threadId=thread_id
        )


DEFAULT_OCCURRENCES = 50

MAX_TERM_CHARS = 1_000
"""Characters of what is searched for."""


@serves("thread/search")
async def search_threads(
    context: RequestContext, params: ThreadSearchParams
) -> ThreadSearchResponse:
    """Page through the threads in which a term was said."""
    _require_term(context.method, params.search_term)
    query = SearchQuery(
        term=params.search_term,
        limit=page_size(params.limit),
        cursor=params.cursor,
        sort_key=SORT_KEYS[params.sort_key],
        ascending=params.sort_direction == "asc",
        archived=params.archived is True,
        source_kinds=params.source_kinds or (),
    )
    with cursor_failures():
        page, rows = await context.services.store.history.search(query)
    filing = await context.services.store.organization.latest()
    return ThreadSearchResponse(
        data=[
            ThreadSearchResult(thread=_thread(context.services, row, filing), snippet=one.snippet)
            for one in page.found
            if (row := rows.get(one.thread_id)) is not None
        ],
        next_cursor=page.next_cursor,
        backwards_cursor=page.backwards_cursor,
    )


def _thread(services: Services, row: ThreadRow, filing: FilingState) -> Thread:
    status = status_of(services.sessions.find(row.id))
    return thread_of_row(row, status, services.store.shown_path(row.id), filing)


@serves("thread/searchOccurrences")
async def search_occurrences(
    context: RequestContext, params: ThreadSearchOccurrencesParams
) -> ThreadSearchOccurrencesResponse:
    """Page through the places of one thread where a term was said."""
    thread_id, term = params.thread_id, params.search_term
    _require_term(context.method, term)
    refuse_ephemeral(context.services.sessions, thread_id, context.method)
    limit = page_size(params.limit, DEFAULT_OCCURRENCES)
    with thread_failures(thread_id, not_loaded(thread_id)), cursor_failures():
        found, cursor = await context.services.store.history.ask(
            thread_id, occurrences_page, term, limit, params.cursor
        )
    return ThreadSearchOccurrencesResponse(
        data=[_occurrence(one) for one in found], next_cursor=cursor
    )


def _require_term(method: str, term: str) -> None:
    if not term.strip():
        raise invalid_request(f"{method} requires a non-empty searchTerm", "invalidParams")
    if len(term) > MAX_TERM_CHARS:
        rule = f"holds more than {MAX_TERM_CHARS} characters"
        raise invalid_member("searchTerm", rule)


def _occurrence(found: Occurrence) -> ThreadSearchOccurrence:
    start, end = found.excerpt.utf16_range
    return ThreadSearchOccurrence(
        turn_id=found.turn_id,
        item_id=found.item_id,
        snippet=found.excerpt.text,
        snippet_match_range=ThreadSearchTextRange(start=start, end=end),
        turn_cursor=found.turn_cursor,
    )


def item_entry(paged: PagedItem) -> ThreadItemEntry:
    """Show an item with its turn, as it is."""
    return _entry(paged, paged.item)


def listed_entry(paged: PagedItem, deferral: ThreadItemOutputDeferral | None) -> ThreadItemEntry:
    """Show an item in a page, without an output that is to be left out or fits into no page."""
    item = paged.item
    if isinstance(item, McpToolCallThreadItem) and item.result is not None:
        asked = deferral is not None and deferral.mcp_tool_call and _is_plain(item)
        if asked or paged.size > MAX_PAGE_BYTES:
            emptied = item.result.model_copy(update={"content": [], "structured_content": None})
            item = item.model_copy(update={"result": emptied})
    return _entry(paged, item)


def _entry(paged: PagedItem, item: ThreadItem) -> ThreadItemEntry:
    return ThreadItemEntry(
        turn_id=paged.turn.id,
        item=item,
        output_deferred=item is not paged.item,
        started_at_ms=getattr(item, "started_at_ms", None),
        completed_at_ms=getattr(item, "completed_at_ms", None),
    )


def _is_plain(item: McpToolCallThreadItem) -> bool:
    """Whether a call went well and gave text alone."""
    result = item.result
    if item.status != "completed" or result is None or result.structured_content is not None:
        return False
    texts = [isinstance(part, dict) and part.get("type") == "text" for part in result.content]
    return bool(texts) and all(texts)


def timeline_entry(entry: TimelineEntry) -> ThreadTimelineEntry:
    """Show an entry of the timeline."""
    turn: TurnOutline = entry.turn
    started_at = turn.started_at_ms // 1000
    if entry.kind == "started":
        return TurnStartedThreadTimelineEntry(
            position=entry.position, turn_id=turn.id, started_at=started_at
        )
    if entry.kind == "item":
        assert entry.item is not None
        return ItemThreadTimelineEntry(position=entry.position, turn_id=turn.id, item=entry.item)
    return TurnCompletedThreadTimelineEntry(
        position=entry.position,
        turn_id=turn.id,
        status=turn.status,
        error=turn.error,
        started_at=started_at,
        completed_at=None if turn.completed_at_ms is None else turn.completed_at_ms // 1000,
        duration_ms=turn.duration_ms,
    )


@serves("thread/readState/update")
async def update_read_state(
    context: RequestContext, params: ThreadReadStateUpdateParams
) -> ThreadReadStateUpdateResponse:
    """Mark a thread as read or unread, unless its read state is another than the user saw."""
    unread = params.operation.type == "unread"
    record = ReadStateChanged(
        at_ms=context.services.clock.now_ms(),
        first_unread=ThreadStartThreadUnreadPosition() if unread else None,
        revision=new_revision(),
    )

    def decide(state: ThreadState) -> Sequence[Record]:
        current = state.metadata.read_state or initial_read_state(state.id)
        if current.revision != params.expected_revision:
            raise invalid_request(
                "read state changed",
                "readStateConflict",
                reason="readStateConflict",
                readState=current.model_dump(mode="json"),
            )
        return [record]

    state, _ = await change_thread(
        context.services,
        params.thread_id,
        decide,
        missing=not_loaded(params.thread_id),
        ephemeral=invalid_request(
            "thread read state unavailable", "ephemeralThread", threadId=params.thread_id
        ),
    )
    assert state.metadata.read_state is not None
    event = ThreadReadStateChangedNotification(
        thread_id=params.thread_id, read_state=state.metadata.read_state
    )
    context.after_answer(context.services.hub.emit, params.thread_id, event)
    return ThreadReadStateUpdateResponse(read_state=state.metadata.read_state)
