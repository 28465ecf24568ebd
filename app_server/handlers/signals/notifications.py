"""notification/list: what is to be sent to receivers of notifications, and what could not be."""

from collections.abc import Iterator
from contextlib import contextmanager

import anyio.to_thread

from app_server.handlers.errors import cursor_failures
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.views.pages import page_size
from app_server.rpc.dispatch import storage_failed
from app_server.threads.failures import StoreUnavailable
from app_server.threads.outbox import OutboxEntry
from protocol.jsonrpc.errors import internal_error
from protocol.signals.notifications import (
    NotificationEntry,
    NotificationListParams,
    NotificationListResponse,
)


@serves("notification/list")
async def list_notifications(
    context: RequestContext, params: NotificationListParams
) -> NotificationListResponse:
    """Page through the outbox of notifications; empty where no server has begun one."""
    with cursor_failures(), _outbox_failures():
        outbox = await context.services.notifications.outbox()
        if outbox is None:
            return NotificationListResponse(data=[])
        limit = page_size(params.limit)
        page = await anyio.to_thread.run_sync(outbox.page, params.state, params.cursor, limit)
    return NotificationListResponse(
        data=[_shown(entry) for entry in page.entries], next_cursor=page.next_cursor
    )


@contextmanager
def _outbox_failures() -> Iterator[None]:
    try:
        yield
    except StoreUnavailable as exc:
        raise storage_failed(exc, "notifications cannot be read") from exc
    except OSError as exc:
        raise internal_error(f"notifications cannot be read: {exc}", "storageFailed") from exc


def _shown(entry: OutboxEntry) -> NotificationEntry:
    return NotificationEntry(
        id=entry.id,
        receiver=entry.label,
        event=entry.event,
        thread_id=entry.thread_id,
        state=entry.state,
        created_at_ms=entry.created_at_ms,
        ended_at_ms=entry.ended_at_ms,
        attempts=entry.attempts,
        error=entry.error,
    )
