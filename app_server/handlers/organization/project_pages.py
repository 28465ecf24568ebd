"""Pages of `project/list`. No I/O.

A cursor holds the place of the last project that was shown, so that it stays good when projects
are added, moved or deleted.
"""

from collections.abc import Mapping, Sequence

from app_server.views.pages import page_size
from protocol.cursors import InvalidCursor, parse_cursor, render_cursor
from protocol.errors import RpcError, invalid_params
from protocol.planning import Project, ProjectListParams, ProjectListResponse

DEFAULT_PAGE = 50

Place = tuple[int, str]


def project_page(
    projects: Sequence[Project], recency_ms: Mapping[str, int], params: ProjectListParams
) -> ProjectListResponse:
    """Cut one page out of all projects; `recency_ms` has those that a thread is in.

    Raises:
        RpcError: the order makes no sense, or the cursor is none of this order's.
    """
    if params.sort_direction is not None and params.sort_key is None:
        raise invalid_params("sortDirection requires sortKey", field="sortDirection")
    by_recency = params.sort_key == "recencyAt"
    ascending = (params.sort_direction or ("desc" if by_recency else "asc")) == "asc"
    order = f"{'recencyAt' if by_recency else 'position'} {'asc' if ascending else 'desc'}"

    def place(project: Project) -> Place:
        if not by_recency:
            return project.position, project.id
        # Those that no thread is in come last, whichever way the others go.
        idle = -1 if not ascending else 1 << 62
        return recency_ms.get(project.id, idle), project.id

    rest = sorted(projects, key=place, reverse=not ascending)
    if params.cursor is not None:
        rest = rest[_start(rest, [place(project) for project in rest], params, order, ascending) :]
    limit = page_size(params.limit, DEFAULT_PAGE)
    page = rest[:limit]
    more = len(rest) > limit
    return ProjectListResponse(
        data=page, next_cursor=_cursor(order, place(page[-1])) if more else None
    )


def _start(
    rest: Sequence[Project],
    places: Sequence[Place],
    params: ProjectListParams,
    order: str,
    ascending: bool,
) -> int:
    after = _parse(params.cursor or "", order)
    for index, project in enumerate(rest):
        if project.id == after[1]:
            return index + 1
    for index, place in enumerate(places):
        if (place > after) == ascending:
            return index
    return len(rest)


def _cursor(order: str, place: Place) -> str:
    return render_cursor(order, *place)


def _parse(cursor: str, order: str) -> Place:
    try:
        value = parse_cursor(cursor)
    except InvalidCursor:
        raise _no_cursor(cursor) from None
    match value:
        case [str(found), int(number), str(project_id)] if found == order:
            return number, project_id
    raise _no_cursor(cursor)


def _no_cursor(cursor: str) -> RpcError:
    return invalid_params(
        "invalid project cursor: malformed or mismatched sort anchor",
        "invalidCursor",
        cursor=cursor,
    )
