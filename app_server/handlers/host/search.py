"""fuzzyFileSearch and its sessions: files by letters of their paths.

Source: docs/tools.md, "Host methods".
"""

from app_server.handlers.errors import file_failures
from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.host.search.ranking import Match
from app_server.host.search.service import FileSearch, Matches
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


@serves("fuzzyFileSearch")
async def search_files(
    context: RequestContext, params: FuzzyFileSearchParams
) -> FuzzyFileSearchResponse:
    """Run one fuzzy file search."""
    with file_failures():
        found = await context.services.part(_search).search(
            params.query, params.roots, context.connection_id, params.cancellation_token
        )
    return FuzzyFileSearchResponse(files=_results(found))


@serves("fuzzyFileSearch/sessionStart")
async def start_search(
    context: RequestContext, params: FuzzyFileSearchSessionStartParams
) -> FuzzyFileSearchSessionStartResponse:
    """Begin a fuzzy file search session."""
    client, session_id = context.connection_id, params.session_id
    if not session_id:
        raise invalid_request("sessionId must not be empty", "invalidSession")
    if not params.roots:
        raise internal_error(
            "failed to start fuzzy file search session: at least one search directory is required",
            "invalidSession",
        )

    def on_matches(query: str, matches: Matches) -> None:
        event = FuzzyFileSearchSessionUpdatedNotification(
            session_id=session_id, query=query, files=_results(matches)
        )
        context.services.hub.notify(client, event)

    def on_complete() -> None:
        event = FuzzyFileSearchSessionCompletedNotification(session_id=session_id)
        context.services.hub.notify(client, event)

    with file_failures():
        context.services.part(_search).start(
            client, session_id, params.roots, on_matches, on_complete
        )
    context.services.hub.connections.when_gone(client, context.services.part(_search).stop_all)
    return FuzzyFileSearchSessionStartResponse()


@serves("fuzzyFileSearch/sessionUpdate")
async def update_search(
    context: RequestContext, params: FuzzyFileSearchSessionUpdateParams
) -> FuzzyFileSearchSessionUpdateResponse:
    """Change the query of a search session."""
    if not context.services.part(_search).update(
        context.connection_id, params.session_id, params.query
    ):
        raise invalid_request(
            f"fuzzy file search session not found: {params.session_id}",
            "sessionNotFound",
            sessionId=params.session_id,
        )
    return FuzzyFileSearchSessionUpdateResponse()


@serves("fuzzyFileSearch/sessionStop")
async def stop_search(
    context: RequestContext, params: FuzzyFileSearchSessionStopParams
) -> FuzzyFileSearchSessionStopResponse:
    """End a search session."""
    context.services.part(_search).stop(context.connection_id, params.session_id)
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


def _search(services: Services) -> FileSearch:
    return FileSearch(services.tasks)
