"""fuzzyFileSearch and its sessions: files by letters of their paths.

Source: docs/tools.md, "Host methods".
"""

from app_server.handlers.host.failures import file_failures
from app_server.handlers.services import Services
from app_server.host.search.ranking import Match
from app_server.host.search.service import FileSearch, Matches
from app_server.rpc.context import RequestContext, Routes
from protocol.host.search import (
    FuzzyFileSearchParams,
    FuzzyFileSearchResponse,
    FuzzyFileSearchResult,
    FuzzyFileSearchSessionCompletedNotification,
    FuzzyFileSearchSessionStartParams,
    FuzzyFileSearchSessionStartResponse,
    FuzzyFileSearchSessionStopParams,
    FuzzyFileSearchSessionStopResponse,
    FuzzyFileSearchSessionUpdatedNotification,
    FuzzyFileSearchSessionUpdateParams,
    FuzzyFileSearchSessionUpdateResponse,
)
from protocol.jsonrpc.errors import internal_error, invalid_request


class SearchFilesHandlers:
    """The methods about fuzzyFileSearch."""

    def __init__(self, services: Services) -> None:
        self._hub = services.hub
        self._search = FileSearch(services.tasks)
        self.routes: Routes = {
            "fuzzyFileSearch": self.search,
            "fuzzyFileSearch/sessionStart": self.start,
            "fuzzyFileSearch/sessionStop": self.stop,
            "fuzzyFileSearch/sessionUpdate": self.update,
        }

    async def search(
        self, context: RequestContext, params: FuzzyFileSearchParams
    ) -> FuzzyFileSearchResponse:
        """Search once."""
        with file_failures():
            found = await self._search.search(
                params.query, params.roots, context.connection_id, params.cancellation_token
            )
        return FuzzyFileSearchResponse(files=_results(found))

    async def start(
        self, context: RequestContext, params: FuzzyFileSearchSessionStartParams
    ) -> FuzzyFileSearchSessionStartResponse:
        """Begin a session."""
        client, session_id = context.connection_id, params.session_id
        if not session_id:
            raise invalid_request("sessionId must not be empty", "invalidSession")
        if not params.roots:
            raise internal_error(
                "failed to start fuzzy file search session: at least one search directory is "
                "required",
                "invalidSession",
            )

        def on_matches(query: str, matches: Matches) -> None:
            event = FuzzyFileSearchSessionUpdatedNotification(
                session_id=session_id, query=query, files=_results(matches)
            )
            self._hub.notify(client, event)

        def on_complete() -> None:
            event = FuzzyFileSearchSessionCompletedNotification(session_id=session_id)
            self._hub.notify(client, event)

        with file_failures():
            self._search.start(client, session_id, params.roots, on_matches, on_complete)
        self._hub.connections.when_gone(client, self._search.stop_all)
        return FuzzyFileSearchSessionStartResponse()

    async def update(
        self, context: RequestContext, params: FuzzyFileSearchSessionUpdateParams
    ) -> FuzzyFileSearchSessionUpdateResponse:
        """Search for something else."""
        if not self._search.update(context.connection_id, params.session_id, params.query):
            raise invalid_request(
                f"fuzzy file search session not found: {params.session_id}",
                "sessionNotFound",
                sessionId=params.session_id,
            )
        return FuzzyFileSearchSessionUpdateResponse()

    async def stop(
        self, context: RequestContext, params: FuzzyFileSearchSessionStopParams
    ) -> FuzzyFileSearchSessionStopResponse:
        """End a session."""
        self._search.stop(context.connection_id, params.session_id)
        return FuzzyFileSearchSessionStopResponse()


def _results(matches: Matches) -> list[FuzzyFileSearchResult]:
    return [_result(match) for match in matches]


def _result(match: Match) -> FuzzyFileSearchResult:
    return FuzzyFileSearchResult(
        root=match.root,
        path=match.path,
        match_type="file" if match.is_file else "directory",
        file_name=match.path.rpartition("/")[2],
        score=match.score,
        indices=list(match.indices),
    )
