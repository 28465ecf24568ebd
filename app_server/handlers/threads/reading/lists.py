"""thread/list, thread/loaded/list and thread/read: which threads there are, and one of them."""

from app_server.handlers.errors import cursor_failures, known_filing, not_loaded, thread_failures
from app_server.handlers.services import Services
from app_server.handlers.threads.reading.list_query import list_query
from app_server.handlers.threads.shown import shown_thread, shown_turns, status_of
from app_server.handlers.views.shown_rows import ShownRows
from app_server.handlers.views.threads import read_state_of
from app_server.rpc.context import RequestContext, Routes
from protocol.jsonrpc.errors import invalid_request
from protocol.threads.lists import (
    ThreadListParams,
    ThreadListResponse,
    ThreadLoadedListParams,
    ThreadLoadedListResponse,
    ThreadReadParams,
    ThreadReadResponse,
)


class ThreadListHandlers:
    """The methods that look at threads, and load none."""

    def __init__(self, services: Services) -> None:
        self._store = services.store
        self._sessions = services.sessions
        self._configuration = services.configuration
        self._shown = ShownRows(services.store.shown_path)
        self.routes: Routes = {
            "thread/list": self.list_page,
            "thread/loaded/list": self.list_loaded,
            "thread/read": self.read,
        }

    async def read(self, context: RequestContext, params: ThreadReadParams) -> ThreadReadResponse:
        """Look at a thread without loading it."""
        session = self._sessions.find(params.thread_id)
        if session is None:
            with thread_failures(params.thread_id, not_loaded(params.thread_id)):
                state = await self._store.read(params.thread_id)
                state.give_up_open_turn(state.updated_at_ms)
        else:
            state = session.thread.state
        if params.include_turns and state.created.ephemeral:
            raise invalid_request(
                "ephemeral threads do not support includeTurns",
                "ephemeralThread",
                threadId=params.thread_id,
            )
        turns = []
        if params.include_turns:
            with thread_failures(params.thread_id, not_loaded(params.thread_id)):
                turns = await shown_turns(self._store, state, loaded=session is not None)
        return ThreadReadResponse(
            thread=shown_thread(self._store, state, session, turns),
            read_state=read_state_of(state),
        )

    async def list_page(
        self, context: RequestContext, params: ThreadListParams
    ) -> ThreadListResponse:
        """Page through stored threads."""
        filing = await known_filing(
            self._store.organization,
            is_asked_for=not {"section_id", "project_id"}.isdisjoint(params.model_fields_set),
        )
        query = list_query(params, filing, self._configuration.resolve)
        if params.attached_to_thread_id is not None:
            # Nothing can be attached to a thread yet.
            return ThreadListResponse(data=[], read_states={})
        with cursor_failures():
            page = await self._store.lists.page(query)
        found = ((row, self._sessions.find(row.id)) for row in page.rows)
        shown = [self._shown.show(row, status_of(session), filing) for row, session in found]
        return ThreadListResponse(
            data=[thread for thread, _ in shown],
            read_states={thread.id: read_state for thread, read_state in shown},
            next_cursor=page.next_cursor,
            backwards_cursor=page.backwards_cursor,
        )

    async def list_loaded(
        self, context: RequestContext, params: ThreadLoadedListParams
    ) -> ThreadLoadedListResponse:
        """Page through the ids of loaded threads."""
        ids = self._sessions.ids
        if params.cursor is not None:
            if params.cursor not in ids:
                raise invalid_request(
                    f"invalid cursor: {params.cursor}", "invalidCursor", cursor=params.cursor
                )
            ids = ids[ids.index(params.cursor) + 1 :]
        limit = len(ids) if params.limit is None else max(params.limit, 1)
        page = ids[:limit]
        return ThreadLoadedListResponse(
            data=page, next_cursor=page[-1] if len(ids) > limit else None
        )
