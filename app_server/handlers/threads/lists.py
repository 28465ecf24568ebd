"""thread/list, thread/loaded/list and thread/read: which threads there are, and one of them.

Source: docs/threads.md, "Lists".
"""

import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from app_server.handlers.errors import cursor_failures, known_filing, not_loaded, thread_failures
from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.threads.shown import shown_thread, shown_turns, status_of
from app_server.handlers.threads.stored import is_written_elsewhere
from app_server.handlers.views.pages import page_size
from app_server.handlers.views.threads import read_state_of, read_state_of_row, thread_of_row
from app_server.rpc.dispatch import storage_failed
from app_server.threads.failures import InvalidThreadId, ThreadNotFound
from app_server.threads.organization import FilingState
from app_server.threads.rows import SUB_AGENT_KINDS, SortKey, ThreadQuery, ThreadRow, Within
from protocol.jsonrpc.errors import RpcError, invalid_params, invalid_request
from protocol.threads.lists import (
    ThreadListParams,
    ThreadListResponse,
    ThreadLoadedListParams,
    ThreadLoadedListResponse,
    ThreadReadParams,
    ThreadReadResponse,
)
from protocol.threads.thread import Thread, ThreadReadState, ThreadStatus

MAX_LOADED = 10_000
"""Ids that a page of loaded threads has in a group of servers: 390,000 characters."""
MAX_SHOWN = 256
"""Threads; with more of them everything is forgotten."""


@dataclass(frozen=True, slots=True)
class _Shown:
    row: ThreadRow
    status: ThreadStatus
    filing: FilingState
    thread: Thread
    read_state: ThreadReadState


class ShownRows:
    """Cache of the list rows shown lately; its values are not to be changed."""

    def __init__(self, path_of: Callable[[str], str | None]) -> None:
        """`path_of` says which file clients are shown for a listed thread."""
        self._path_of = path_of
        self._shown: dict[str, _Shown] = {}

    def show(
        self, row: ThreadRow, status: ThreadStatus, filing: FilingState
    ) -> tuple[Thread, ThreadReadState]:
        """Show a thread from the index, and how far it was read."""
        known = self._shown.get(row.id)
        # An index that was not read again gives the same rows, and filing is replaced as a whole.
        if (
            known is None
            or known.row is not row
            or known.filing is not filing
            or known.status != status
        ):
            thread = thread_of_row(row, status, self._path_of(row.id), filing)
            known = _Shown(row, status, filing, thread, read_state_of_row(row))
            if len(self._shown) >= MAX_SHOWN:
                self._shown.clear()
            self._shown[row.id] = known
        return known.thread, known.read_state


MAX_EXCLUDED = 100

SORT_KEYS: Mapping[str | None, SortKey] = {
    None: "created_at_ms",
    "created_at": "created_at_ms",
    "updated_at": "updated_at_ms",
    "recency_at": "recency_at_ms",
    "section_position": "section_rank",
}


def list_query(
    params: ThreadListParams, filing: FilingState, resolve: Callable[[str], str]
) -> ThreadQuery:
    """Turn the parameters into a query; `resolve` makes folders absolute.

    Raises:
        RpcError: filters that make no sense together, or name what there is not.
    """
    _check(params, filing)
    cwds = [params.cwd] if isinstance(params.cwd, str) else params.cwd or []
    by_position = params.sort_key == "section_position"
    return ThreadQuery(
        limit=page_size(params.limit),
        cursor=params.cursor,
        sort_key=SORT_KEYS[params.sort_key],
        ascending=(params.sort_direction or ("asc" if by_position else "desc")) == "asc",
        archived=params.archived is True,
        model_providers=params.model_providers or (),
        source_kinds=_kinds(params.source_kinds or ()),
        originators=params.originators or (),
        cwds=[resolve(cwd) for cwd in cwds],
        excluded=params.excluded_thread_ids or (),
        section=_within(params, "section_id", params.section_id, tuple(filing.sections)),
        project=_within(params, "project_id", params.project_id, tuple(filing.projects)),
        parent=params.parent_thread_id,
        ancestor=params.ancestor_thread_id,
        search=params.search_term,
    )


def _check(params: ThreadListParams, filing: FilingState) -> None:
    if params.sort_key == "section_position" and params.section_id is None:
        raise _refused("section-position sorting requires a section filter")
    if params.attached_to_thread_id is not None and (
        params.parent_thread_id is not None or params.ancestor_thread_id is not None
    ):
        raise _refused(
            "attachedToThreadId cannot be combined with parentThreadId or ancestorThreadId"
        )
    if params.parent_thread_id is not None and params.ancestor_thread_id is not None:
        raise _refused("parentThreadId and ancestorThreadId are mutually exclusive")
    if params.include_attached_threads and not params.search_term:
        raise _refused("includeAttachedThreads requires a non-empty searchTerm")
    if len(params.excluded_thread_ids or ()) > MAX_EXCLUDED:
        raise invalid_params(
            f"excludedThreadIds accepts at most {MAX_EXCLUDED} entries", field="excludedThreadIds"
        )
    for thread_id in params.excluded_thread_ids or ():
        if not _is_uuid(thread_id):
            raise invalid_params(
                f"invalid excluded thread id: {thread_id}", field="excludedThreadIds"
            )
    for word, named in (
        ("parent", params.parent_thread_id),
        ("ancestor", params.ancestor_thread_id),
        ("attached-to", params.attached_to_thread_id),
    ):
        if named is not None and not _is_uuid(named):
            raise invalid_request(
                f"invalid {word} thread id: {named}", "invalidThreadId", threadId=named
            )
    if params.project_id == "":
        raise invalid_params("projectId must not be empty", field="projectId")
    if params.project_id is not None and params.project_id not in filing.projects:
        raise invalid_params(
            f"project not found: {params.project_id}",
            "projectNotFound",
            projectId=params.project_id,
        )


def _refused(message: str) -> Exception:
    return invalid_request(message, "invalidFilter")


def _is_uuid(text: str) -> bool:
    try:
        uuid.UUID(text)
    except ValueError:
        return False
    return True


def _kinds(kinds: Sequence[str]) -> Sequence[str]:
    if "subAgent" not in kinds:
        return kinds
    return [*kinds, *SUB_AGENT_KINDS]


def _within(
    params: ThreadListParams, member: str, place: str | None, known: Sequence[str]
) -> Within | None:
    """Left out means no restriction; null, in none of the places."""
    return Within(place, known) if member in params.model_fields_set else None


@serves("thread/read")
async def read_thread(context: RequestContext, params: ThreadReadParams) -> ThreadReadResponse:
    """Read a thread without loading it."""
    session = context.services.sessions.find(params.thread_id)
    runs = session is not None
    if session is None:
        with thread_failures(params.thread_id, not_loaded(params.thread_id)):
            state = await context.services.store.read(params.thread_id)
            if state.open_turn is not None:
                runs = await is_written_elsewhere(context.services, params.thread_id)
        if not runs:
            state.give_up_open_turn(state.updated_at_ms)
    else:
        state = session.log.state
    if params.include_turns and state.created.ephemeral:
        raise invalid_request(
            "ephemeral threads do not support includeTurns",
            "ephemeralThread",
            threadId=params.thread_id,
        )
    turns = []
    if params.include_turns:
        with thread_failures(params.thread_id, not_loaded(params.thread_id)):
            turns = await shown_turns(context.services.store, state, loaded=runs)
    return ThreadReadResponse(
        thread=shown_thread(context.services.store, state, session, turns),
        read_state=read_state_of(state),
    )


@serves("thread/list")
async def list_threads(context: RequestContext, params: ThreadListParams) -> ThreadListResponse:
    """Page through stored threads."""
    filing = await known_filing(
        context.services.store.organization,
        is_asked_for=not {"section_id", "project_id"}.isdisjoint(params.model_fields_set),
    )
    query = list_query(params, filing, context.services.configuration.resolve)
    if params.attached_to_thread_id is not None:
        # Nothing can be attached to a thread yet.
        return ThreadListResponse(data=[], read_states={})
    with cursor_failures():
        page = await context.services.store.lists.page(query)
    found = ((row, context.services.sessions.find(row.id)) for row in page.rows)
    shown = [
        context.services.part(_shown_rows).show(row, status_of(session), filing)
        for row, session in found
    ]
    return ThreadListResponse(
        data=[thread for thread, _ in shown],
        read_states={thread.id: read_state for thread, read_state in shown},
        next_cursor=page.next_cursor,
        backwards_cursor=page.backwards_cursor,
    )


@serves("thread/loaded/list")
async def list_loaded_threads(
    context: RequestContext, params: ThreadLoadedListParams
) -> ThreadLoadedListResponse:
    """Page through the ids of loaded threads, with those of other nodes first."""
    ids = context.services.sessions.ids
    if context.services.loaded_elsewhere is not None:
        return await _loaded_of_all(context.services.loaded_elsewhere, ids, params)
    if params.cursor is not None:
        if params.cursor not in ids:
            raise _invalid_cursor(params.cursor)
        ids = ids[ids.index(params.cursor) + 1 :]
    limit = len(ids) if params.limit is None else max(params.limit, 1)
    page = ids[:limit]
    return ThreadLoadedListResponse(data=page, next_cursor=page[-1] if len(ids) > limit else None)


async def _loaded_of_all(
    loaded_elsewhere: Callable[[str | None, int], Awaitable[Sequence[str]]],
    own: Sequence[str],
    params: ThreadLoadedListParams,
) -> ThreadLoadedListResponse:
    """Return a page of all nodes of a group: those of others end where our own begin."""
    cursor = params.cursor
    limit = min(MAX_LOADED if params.limit is None else max(params.limit, 1), MAX_LOADED)
    elsewhere: Sequence[str] = []
    if cursor in own:
        own = own[own.index(cursor) + 1 :]
    else:
        try:
            elsewhere = await loaded_elsewhere(cursor, limit + 1)
        except (ThreadNotFound, InvalidThreadId):
            raise _invalid_cursor(cursor) from None
        except OSError as exc:
            raise storage_failed(exc, "threads of other nodes cannot be listed") from exc
    # The database may be behind about those that have just been taken.
    ids = [one for one in elsewhere[:limit] if one not in own]
    if len(elsewhere) > limit:
        return ThreadLoadedListResponse(data=ids, next_cursor=elsewhere[limit - 1])
    ids += own
    page = ids[:limit]
    return ThreadLoadedListResponse(data=page, next_cursor=page[-1] if len(ids) > limit else None)


def _invalid_cursor(cursor: str | None) -> RpcError:
    return invalid_request(f"invalid cursor: {cursor}", "invalidCursor", cursor=cursor)


def _shown_rows(services: Services) -> ShownRows:
    return ShownRows(services.store.shown_path)
