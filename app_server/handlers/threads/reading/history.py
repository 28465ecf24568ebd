"""thread/turns, thread/items, thread/timeline: a thread's history, read page by page.

Nothing is loaded for it; of a running thread it shows what is in the log so far.
Source: docs/wire.md, "History and search".
"""

from collections.abc import Callable
from typing import TypeVar

from app_server.handlers.errors import cursor_failures, not_loaded, thread_failures
from app_server.handlers.services import Services
from app_server.handlers.views.first_pages import wire_page
from app_server.handlers.views.history import item_entry, listed_entry, timeline_entry
from app_server.handlers.views.pages import page_size
from app_server.rpc.context import RequestContext, Routes
from app_server.sessions.registry import Sessions
from app_server.threads.history.pages import (
    AnchorNotFound,
    HistoryQuery,
    HistoryReader,
    ItemsPage,
    items_beside,
    items_by_id,
    items_page,
    timeline_page,
)
from protocol.jsonrpc.errors import invalid_params, invalid_request
from protocol.threads.history import (
    ItemThreadItemsListAnchor,
    ThreadItemsListParams,
    ThreadItemsListResponse,
    ThreadItemsReadParams,
    ThreadItemsReadResponse,
    ThreadTimelineListParams,
    ThreadTimelineListResponse,
    ThreadTurnsListParams,
    ThreadTurnsListResponse,
)

MAX_IDS = 100
"""Items that one `thread/items/read` may ask for."""

Answer = TypeVar("Answer")


class HistoryHandlers:
    """The methods that page through one thread."""

    def __init__(self, services: Services) -> None:
        self._store = services.store
        self._sessions = services.sessions
        self.routes: Routes = {
            "thread/items/list": self.list_items,
            "thread/items/read": self.read_items,
            "thread/timeline/list": self.list_timeline,
            "thread/turns/list": self.list_turns,
        }

    async def list_turns(
        self, context: RequestContext, params: ThreadTurnsListParams
    ) -> ThreadTurnsListResponse:
        """Page through turns, newest first unless asked otherwise."""
        query = HistoryQuery(
            params.thread_id,
            page_size(params.limit),
            params.cursor,
            ascending=params.sort_direction == "asc",
        )
        view = params.items_view or "summary"
        loaded = self._sessions.find(params.thread_id) is not None

        def read(reader: HistoryReader) -> ThreadTurnsListResponse:
            return ThreadTurnsListResponse(**wire_page(reader, query, view, loaded=loaded))

        return await self._ask(context, params.thread_id, read)

    async def list_items(
        self, context: RequestContext, params: ThreadItemsListParams
    ) -> ThreadItemsListResponse:
        """Page through items, oldest first unless asked otherwise."""
        page = await self._ask(context, params.thread_id, self._items_question(params))
        deferral = params.defer_output if params.turn_id is not None else None
        return ThreadItemsListResponse(
            data=[listed_entry(entry, deferral) for entry in page.items],
            next_cursor=page.next_cursor,
            backwards_cursor=page.backwards_cursor,
        )

    def _items_question(
        self, params: ThreadItemsListParams
    ) -> Callable[[HistoryReader], ItemsPage]:
        anchor = params.cursor if isinstance(params.cursor, ItemThreadItemsListAnchor) else None
        query = HistoryQuery(
            params.thread_id,
            page_size(params.limit),
            params.cursor if isinstance(params.cursor, str) else None,
            ascending=params.sort_direction != "desc",
        )
        if anchor is None:
            return lambda reader: items_page(reader, query, params.turn_id)
        if params.turn_id is None:
            raise invalid_params(
                "turnId is required when cursor is an item anchor",
                field="turnId",
                rule="is required when `cursor` is an item",
            )
        turn_id, item_id = params.turn_id, anchor.item_id
        return lambda reader: items_beside(reader, query, turn_id, item_id)

    async def read_items(
        self, context: RequestContext, params: ThreadItemsReadParams
    ) -> ThreadItemsReadResponse:
        """Read some items of one turn in full."""
        if not 1 <= len(params.item_ids) <= MAX_IDS:
            raise invalid_request(f"itemIds must contain 1 to {MAX_IDS} IDs", "invalidParams")
        found = await self._ask(
            context,
            params.thread_id,
            lambda reader: items_by_id(reader, params.turn_id, params.item_ids),
        )
        return ThreadItemsReadResponse(data=[item_entry(entry) for entry in found])

    async def list_timeline(
        self, context: RequestContext, params: ThreadTimelineListParams
    ) -> ThreadTimelineListResponse:
        """Page backwards through turns and items; each page is in the order of the log."""
        query = HistoryQuery(params.thread_id, page_size(params.limit), params.cursor)
        entries, cursor = await self._ask(
            context, params.thread_id, lambda reader: timeline_page(reader, query)
        )
        return ThreadTimelineListResponse(
            data=[timeline_entry(entry) for entry in entries], next_cursor=cursor
        )

    async def _ask(
        self, context: RequestContext, thread_id: str, question: Callable[[HistoryReader], Answer]
    ) -> Answer:
        refuse_ephemeral(self._sessions, thread_id, context.method)
        with thread_failures(thread_id, not_loaded(thread_id)), cursor_failures():
            try:
                return await self._store.history.ask(thread_id, question)
            except AnchorNotFound:
                raise invalid_params(
                    "cursor.itemId does not identify an item in the requested history scope",
                    field="cursor.itemId",
                    rule="must be an item of the turn",
                ) from None


def refuse_ephemeral(sessions: Sessions, thread_id: str, method: str) -> None:
    """Refuse a method that needs a log for a thread that has none."""
    session = sessions.find(thread_id)
    if session is not None and session.thread.ephemeral:
        raise invalid_request(
            f"ephemeral threads do not support {method}", "ephemeralThread", threadId=thread_id
        )
