"""From pages of a thread's history to what the wire shows of them."""

from app_server.threads.history.pages import MAX_PAGE_BYTES, PagedItem, TimelineEntry
from app_server.threads.log.outline import TurnOutline
from protocol.threads.history import (
    ItemThreadTimelineEntry,
    ThreadItemEntry,
    ThreadItemOutputDeferral,
    ThreadTimelineEntry,
    TurnCompletedThreadTimelineEntry,
    TurnStartedThreadTimelineEntry,
)
from protocol.turns.items import McpToolCallThreadItem, ThreadItem


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
