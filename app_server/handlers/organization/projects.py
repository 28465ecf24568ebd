"""project/*: named sets of folders that threads can belong to.

A cursor holds the place of the last project that was shown, so that it stays good when projects
are added, moved or deleted.
Source: docs/threads.md, "Projects and sections".
"""

import contextlib
import os
from collections.abc import Mapping, Sequence

import anyio

from app_server.handlers.errors import filing_failures, thread_failures, unknown_thread
from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.views.pages import page_size
from app_server.threads.failures import InvalidThreadId
from app_server.threads.log.state import ThreadState
from app_server.threads.operations import again_since_ms, made_id
from app_server.threads.organization import FilingState
from protocol.cursors import InvalidCursor, parse_cursor, render_cursor
from protocol.jsonrpc.errors import RpcError, invalid_params, invalid_request
from protocol.log.filing import FiledProject, FilingRecord, ProjectDeleted, ProjectMoved, ProjectPut
from protocol.log.metadata import ProjectChanged
from protocol.log.rollout import Record
from protocol.organization.projects import (
    Project,
    ProjectChangedNotification,
    ProjectChangeType,
    ProjectCreateParams,
    ProjectCreateResponse,
    ProjectDeleteParams,
    ProjectDeleteResponse,
    ProjectImportParams,
    ProjectImportResponse,
    ProjectListParams,
    ProjectListResponse,
    ProjectMoveParams,
    ProjectMoveResponse,
    ProjectReadParams,
    ProjectReadResponse,
    ProjectRoot,
    ProjectUpdateParams,
    ProjectUpdateResponse,
    ThreadProjectUpdatedNotification,
)

MAX_PROJECTS = 10_000


@serves("project/create")
async def create_project(
    context: RequestContext, params: ProjectCreateParams
) -> ProjectCreateResponse:
    """Make a project; a key that was used before gives the project that it made."""
    project = _new(context.services, params)
    made = await _put(context.services, project, params.idempotency_key)
    if made.id == project.id:
        _notify(context, made.id, "created")
    return ProjectCreateResponse(project=await _show(context.services, made.id))


@serves("project/import")
async def import_project(
    context: RequestContext, params: ProjectImportParams
) -> ProjectImportResponse:
    """Make a project of existing threads.

    The threads are written first: the project is there when all of them are in it, and a
    client that never got its answer can ask again.
    """
    project, thread_ids = _new(context.services, params), params.threads or []
    check_imported(thread_ids)
    async with context.services.part(_importing):
        with filing_failures("read"):
            state = await context.services.store.organization.refresh()
        if made_before(state, params.idempotency_key) is None:
            for thread_id in thread_ids:
                await _require_thread(context.services, thread_id)
            await _assign_all(context.services, thread_ids, project.id)
        made = await _put(context.services, project, params.idempotency_key)
    if made.id == project.id:
        _notify(context, made.id, "created")
        for thread_id in thread_ids:
            event = ThreadProjectUpdatedNotification(thread_id=thread_id, project_id=made.id)
            context.after_answer(context.services.hub.broadcast, event)
    return ProjectImportResponse(project=await _show(context.services, made.id))


async def _require_thread(services: Services, thread_id: str) -> None:
    try:
        is_stored = await services.store.exists(thread_id)
    except InvalidThreadId as exc:
        raise unknown_thread(thread_id) from exc
    if not is_stored:
        raise unknown_thread(thread_id)


async def _assign_all(services: Services, thread_ids: Sequence[str], project_id: str) -> None:
    """Put all threads into a project, or, as far as that can be done, none."""
    before: dict[str, str | None] = {}
    try:
        for thread_id in thread_ids:
            before[thread_id] = await _assign(services, thread_id, project_id)
    except RpcError:
        for thread_id, earlier in before.items():
            with contextlib.suppress(RpcError):
                await _assign(services, thread_id, earlier)
        raise


async def _assign(services: Services, thread_id: str, project_id: str | None) -> str | None:
    """Return the project that the thread was in."""
    record = ProjectChanged(at_ms=services.clock.now_ms(), project_id=project_id)
    before: str | None = None

    def decide(state: ThreadState) -> Sequence[Record]:
        nonlocal before
        before = state.metadata.project_id
        return [] if before == project_id else [record]

    with thread_failures(thread_id):
        await services.sessions.change(thread_id, decide)
    return before


@serves("project/read")
async def read_project(context: RequestContext, params: ProjectReadParams) -> ProjectReadResponse:
    """Show one project."""
    with filing_failures("read"):
        required_project(await context.services.store.organization.refresh(), params.project_id)
    return ProjectReadResponse(project=await _show(context.services, params.project_id))


@serves("project/list")
async def list_projects(context: RequestContext, params: ProjectListParams) -> ProjectListResponse:
    """Page through the projects, in the manual order or by their last activity."""
    with filing_failures("read"):
        state = await context.services.store.organization.refresh()
    recency = await context.services.store.organization.project_recency()
    return project_page(all_projects(state, recency), recency, params)


@serves("project/move")
async def move_project(context: RequestContext, params: ProjectMoveParams) -> ProjectMoveResponse:
    """Give a project another place in the manual order."""
    project_id, before = params.project_id, params.before_project_id
    at_ms = context.services.clock.now_ms()

    def decide(state: FilingState) -> Sequence[FilingRecord]:
        project = required_project(state, project_id)
        if before == project_id:
            raise invalid_params(
                f"project {before} cannot be moved before itself", "movedBeforeItself"
            )
        if before is not None and before not in state.projects:
            raise invalid_params(
                f"before project not found: {before}", "projectNotFound", projectId=before
            )
        since_ms = again_since_ms()
        is_changed = since_ms is not None and project.updated_at >= since_ms // 1000
        if is_changed and _follower(state, project_id) == before:
            # By the same request, before it was cut off.
            return []
        touched = project.model_copy(update={"updated_at": at_ms // 1000})
        return [
            ProjectPut(at_ms=at_ms, project=touched),
            ProjectMoved(at_ms=at_ms, project_id=project_id, before_id=before),
        ]

    with filing_failures():
        await context.services.store.organization.change(decide)
    _notify(context, project_id, "updated")
    return ProjectMoveResponse()


def _follower(state: FilingState, project_id: str) -> str | None:
    """Return the project behind another one in the manual order; None: it is the last."""
    ids = [*state.projects, None]
    return ids[ids.index(project_id) + 1]


@serves("project/update")
async def update_project(
    context: RequestContext, params: ProjectUpdateParams
) -> ProjectUpdateResponse:
    """Change the given members of a project; without any, nothing changes."""
    changed: dict[str, object] = {}
    if params.name is not None:
        changed["name"] = project_name(params.name)
    if params.roots is not None:
        changed["roots"] = project_roots(params.roots)
    if params.metadata is not None:
        changed["metadata"] = params.metadata
    at_ms = context.services.clock.now_ms()

    def decide(state: FilingState) -> Sequence[FilingRecord]:
        before = required_project(state, params.project_id)
        project = before.model_copy(update=changed)
        if project == before:
            return []
        project.updated_at = at_ms // 1000
        check_size(project)
        return [ProjectPut(at_ms=at_ms, project=project)]

    with filing_failures():
        added = await context.services.store.organization.change(decide)
    if added:
        _notify(context, params.project_id, "updated")
    return ProjectUpdateResponse(project=await _show(context.services, params.project_id))


@serves("project/delete")
async def delete_project(
    context: RequestContext, params: ProjectDeleteParams
) -> ProjectDeleteResponse:
    """Remove a project; its threads stay, in none."""

    def decide(state: FilingState) -> Sequence[FilingRecord]:
        required_project(state, params.project_id)
        return [ProjectDeleted(at_ms=context.services.clock.now_ms(), project_id=params.project_id)]

    with filing_failures():
        await context.services.store.organization.change(decide)
    _notify(context, params.project_id, "deleted")
    return ProjectDeleteResponse()


def _new(services: Services, params: ProjectCreateParams | ProjectImportParams) -> FiledProject:
    name, roots = project_name(params.name), project_roots(params.roots)
    if not params.idempotency_key:
        raise invalid_params("idempotencyKey must not be empty", field="idempotencyKey")
    now_s = services.clock.now_ms() // 1000
    project = FiledProject(
        id=made_id(services.clock),
        name=name,
        roots=roots,
        metadata=params.metadata or {},
        created_at=now_s,
        updated_at=now_s,
    )
    check_size(project, params.idempotency_key)
    return project


async def _put(services: Services, project: FiledProject, key: str) -> FiledProject:
    made = project

    def decide(state: FilingState) -> Sequence[FilingRecord]:
        nonlocal made
        earlier = made_before(state, key)
        if earlier is not None:
            made = earlier
            return []
        if len(state.projects) >= MAX_PROJECTS:
            raise invalid_request(f"there are {MAX_PROJECTS} projects already", "tooManyProjects")
        return [ProjectPut(at_ms=services.clock.now_ms(), project=project, key=key)]

    with filing_failures():
        await services.store.organization.change(decide)
    return made


async def _show(services: Services, project_id: str) -> Project:
    recency = await services.store.organization.project_recency()
    for project in all_projects(services.store.organization.state, recency):
        if project.id == project_id:
            return project
    raise no_project(project_id)


def _notify(context: RequestContext, project_id: str, change: ProjectChangeType) -> None:
    event = ProjectChangedNotification(project_id=project_id, change_type=change)
    context.after_answer(context.services.hub.broadcast, event)


DEFAULT_PAGE = 50

MAX_CHARS = 65_536
"""Characters of a project's name, roots, metadata and idempotency key together."""

MAX_IMPORTED = 1000
"""Threads of one import."""

ProjectPosition = tuple[int, str]


def project_page(
    projects: Sequence[Project], recency_ms: Mapping[str, int], params: ProjectListParams
) -> ProjectListResponse:
    """Cut one page out of all projects; `recency_ms` lacks projects without threads.

    Raises:
        RpcError: the order makes no sense, or the cursor is none of this order's.
    """
    if params.sort_direction is not None and params.sort_key is None:
        raise invalid_params("sortDirection requires sortKey", field="sortDirection")
    by_recency = params.sort_key == "recencyAt"
    ascending = (params.sort_direction or ("desc" if by_recency else "asc")) == "asc"
    order = f"{'recencyAt' if by_recency else 'position'} {'asc' if ascending else 'desc'}"

    def place(project: Project) -> ProjectPosition:
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


def _start(places: Sequence[ProjectPosition], after: ProjectPosition, *, ascending: bool) -> int:
    ids = [project_id for _, project_id in places]
    if after[1] in ids:
        return ids.index(after[1]) + 1
    # It was deleted.
    behind = (index for index, place in enumerate(places) if (place > after) == ascending)
    return next(behind, len(places))


def _parse(cursor: str, order: str) -> ProjectPosition:
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
    """Show all projects in their manual order; `recency` (ms) lacks those without threads."""
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


def _importing(_: Services) -> anyio.Lock:
    """Make the lock of imports: two of one key must not both take threads in."""
    return anyio.Lock()
