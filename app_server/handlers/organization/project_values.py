"""Projects as clients give and see them, and pages of `project/list`. No I/O.

A cursor holds the place of the last project that was shown, so that it stays good when projects
are added, moved or deleted.
"""

import contextlib
import os
from collections.abc import Mapping, Sequence

from app_server.handlers.views.pages import page_size
from app_server.threads.filing import FilingState
from protocol.cursors import InvalidCursor, parse_cursor, render_cursor
from protocol.jsonrpc.errors import RpcError, invalid_params
from protocol.log.filing import FiledProject
from protocol.organization.projects import (
    Project,
    ProjectListParams,
    ProjectListResponse,
    ProjectRoot,
)

DEFAULT_PAGE = 50
MAX_CHARS = 65_536
"""Characters of a project's name, roots, metadata and idempotency key together."""
MAX_IMPORTED = 1000
"""Threads of one import."""

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
        after = _parse(params.cursor, order)
        rest = rest[_start([place(project) for project in rest], after, ascending=ascending) :]
    limit = page_size(params.limit, DEFAULT_PAGE)
    page = rest[:limit]
    more = len(rest) > limit
    return ProjectListResponse(
        data=page, next_cursor=render_cursor(order, *place(page[-1])) if more else None
    )


def _start(places: Sequence[Place], after: Place, *, ascending: bool) -> int:
    ids = [project_id for _, project_id in places]
    if after[1] in ids:
        return ids.index(after[1]) + 1
    # It was deleted.
    behind = (index for index, place in enumerate(places) if (place > after) == ascending)
    return next(behind, len(places))


def _parse(cursor: str, order: str) -> Place:
    with contextlib.suppress(InvalidCursor):
        match parse_cursor(cursor):
            case [str(found), int(number), str(project_id)] if found == order:
                return number, project_id
    raise invalid_params(
        "invalid project cursor: malformed or mismatched sort anchor",
        "invalidCursor",
        cursor=cursor,
    )


def all_projects(state: FilingState, recency: Mapping[str, int]) -> Sequence[Project]:
    """Show all projects in their manual order; `recency` has ms of those that a thread is in."""
    return [
        Project(
            id=project.id,
            name=project.name,
            roots=[ProjectRoot(path=root) for root in project.roots],
            metadata=project.metadata,
            position=position,
            created_at=project.created_at,
            updated_at=project.updated_at,
            recency_at=recency[project.id] // 1000 if project.id in recency else None,
        )
        for position, project in enumerate(state.projects.values())
    ]


def made_before(state: FilingState, key: str) -> FiledProject | None:
    """Return the project that an idempotency key has made before, if any.

    Raises:
        RpcError: it was deleted.
    """
    project_id = state.keys.get(key)
    if project_id is None:
        return None
    if project_id not in state.projects:
        raise invalid_params(f"idempotency key refers to deleted project: {key}", "projectNotFound")
    return state.projects[project_id]


def required_project(state: FilingState, project_id: str) -> FiledProject:
    """Return a project, or raise RpcError if there is none."""
    project = state.projects.get(project_id)
    if project is None:
        raise no_project(project_id)
    return project


def no_project(project_id: str) -> RpcError:
    """Say that there is no such project."""
    return invalid_params(
        f"project not found: {project_id}", "projectNotFound", projectId=project_id
    )


def check_imported(thread_ids: Sequence[str]) -> None:
    """Refuse threads that are named twice, or are too many."""
    seen: set[str] = set()
    for thread_id in thread_ids:
        if thread_id in seen:
            raise invalid_params(f"duplicate thread id: {thread_id}", field="threads")
        seen.add(thread_id)
    if len(seen) > MAX_IMPORTED:
        raise invalid_params(f"threads must not hold more than {MAX_IMPORTED} ids", field="threads")


def project_name(name: str) -> str:
    """Return a name without blanks around it, or raise RpcError if nothing is left."""
    name = name.strip()
    if not name:
        raise invalid_params("project name must not be empty", "emptyName")
    return name


def project_roots(roots: Sequence[ProjectRoot]) -> list[str]:
    """Return folders as they are stored.

    Raises:
        RpcError: one is not absolute, or there twice.
    """
    paths: dict[str, None] = {}
    for root in roots:
        if not os.path.isabs(root.path) or "\0" in root.path:  # noqa: PTH117
            rule = "must be an absolute path"
            raise invalid_params(f"Invalid params: `roots`: {rule}", field="roots", rule=rule)
        path = os.path.normpath(root.path)
        if path in paths:
            raise invalid_params(f"duplicate project root: {path}", field="roots")
        paths[path] = None
    return list(paths)


def check_size(project: FiledProject, key: str = "") -> None:
    """Refuse a project that is too large with its idempotency key."""
    if len(project.model_dump_json()) + len(key) > MAX_CHARS:
        raise invalid_params(
            f"a project must have at most {MAX_CHARS} characters", "projectTooLarge"
        )
