"""What `thread/list` asks of the index: filters, order, bounds.

Source: docs/threads.md, "Lists".
"""

import uuid
from collections.abc import Callable, Mapping, Sequence

from app_server.handlers.views.pages import page_size
from app_server.threads.filing import FilingState
from app_server.threads.index.rows import SUB_AGENT_KINDS, SortKey, ThreadQuery, Within
from protocol.jsonrpc.errors import invalid_params, invalid_request
from protocol.threads.lists import ThreadListParams

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
