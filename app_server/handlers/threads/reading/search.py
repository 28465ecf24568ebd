"""thread/search, thread/searchOccurrences: finding threads, and places in one, by what was said.

Source: docs/wire.md, "History and search".
"""

from app_server.handlers.errors import cursor_failures, not_loaded, thread_failures
from app_server.handlers.services import Services
from app_server.handlers.threads.reading.history import refuse_ephemeral
from app_server.handlers.threads.reading.list_query import SORT_KEYS
from app_server.handlers.threads.shown import status_of
from app_server.handlers.views.pages import page_size
from app_server.handlers.views.threads import thread_of_row
from app_server.rpc.context import RequestContext, Routes
from app_server.threads.filing import FilingState
from app_server.threads.history.search import Occurrence, SearchQuery, occurrences_page
from app_server.threads.index.rows import ThreadRow
from protocol.jsonrpc.errors import invalid_member, invalid_request
from protocol.threads.history import (
    ThreadSearchOccurrence,
    ThreadSearchOccurrencesParams,
    ThreadSearchOccurrencesResponse,
    ThreadSearchParams,
    ThreadSearchResponse,
    ThreadSearchResult,
    ThreadSearchTextRange,
)
from protocol.threads.thread import Thread

DEFAULT_OCCURRENCES = 50
MAX_TERM_CHARS = 1_000
"""Characters of what is searched for."""


class SearchHandlers:
    """The methods that search."""

    def __init__(self, services: Services) -> None:
        self._store = services.store
        self._sessions = services.sessions
        self.routes: Routes = {
            "thread/search": self.search,
            "thread/searchOccurrences": self.search_occurrences,
        }

    async def search(
        self, context: RequestContext, params: ThreadSearchParams
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
            page, rows = await self._store.history.search(query)
        filing = await self._store.organization.latest()
        return ThreadSearchResponse(
            data=[
                ThreadSearchResult(thread=self._thread(row, filing), snippet=one.snippet)
                for one in page.found
                if (row := rows.get(one.thread_id)) is not None
            ],
            next_cursor=page.next_cursor,
            backwards_cursor=page.backwards_cursor,
        )

    def _thread(self, row: ThreadRow, filing: FilingState) -> Thread:
        status = status_of(self._sessions.find(row.id))
        return thread_of_row(row, status, self._store.shown_path(row.id), filing)

    async def search_occurrences(
        self, context: RequestContext, params: ThreadSearchOccurrencesParams
    ) -> ThreadSearchOccurrencesResponse:
        """Page through the places of one thread where a term was said."""
        thread_id, term = params.thread_id, params.search_term
        _require_term(context.method, term)
        refuse_ephemeral(self._sessions, thread_id, context.method)
        limit = page_size(params.limit, DEFAULT_OCCURRENCES)
        with thread_failures(thread_id, not_loaded(thread_id)), cursor_failures():
            found, cursor = await self._store.history.ask(
                thread_id, lambda reader: occurrences_page(reader, term, limit, params.cursor)
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
