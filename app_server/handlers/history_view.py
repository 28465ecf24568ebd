"""From pages of a thread's history to what the wire shows of them."""

from app_server.threads.outline import TurnOutline
from app_server.threads.pages import PagedItem
from app_server.threads.timeline import TimelineEntry
from protocol.history import (
    ItemThreadTimelineEntry,
    ThreadItemEntry,
    ThreadItemOutputDeferral,
    ThreadTimelineEntry,
    TurnCompletedThreadTimelineEntry,
    TurnStartedThreadTimelineEntry,
)
from protocol.items import McpToolCallThreadItem, ThreadItem


def item_entry(
    paged: PagedItem, deferral: ThreadItemOutputDeferral | None = None
) -> ThreadItemEntry:
    """Show an item with its turn, without the output that is to be left out."""
    item, deferred = paged.item, False
    if deferral is not None and deferral.mcp_tool_call:
        item, deferred = _without_output(item)
    return ThreadItemEntry(
        turn_id=paged.turn.id,
        item=item,
        output_deferred=deferred,
        started_at_ms=getattr(item, "started_at_ms", None),
        completed_at_ms=getattr(item, "completed_at_ms", None),
    )


def _without_output(item: ThreadItem) -> tuple[ThreadItem, bool]:
    if not isinstance(item, McpToolCallThreadItem) or item.status != "completed":
        return item, False
    result = item.result
    if result is None or result.structured_content is not None or not result.content:
        return item, False
    if any(not isinstance(part, dict) or part.get("type") != "text" for part in result.content):
        return item, False
    emptied = result.model_copy(update={"content": []})
    return item.model_copy(update={"result": emptied}), True


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
