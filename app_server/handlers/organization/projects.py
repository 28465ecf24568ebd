"""project/*: named sets of folders that threads can belong to.

Source: docs/threads.md, "Projects and sections".
"""

import contextlib
import os
from collections.abc import Mapping, Sequence

import anyio

from app_server.handlers.errors import thread_failures
from app_server.handlers.organization.project_pages import project_page
from app_server.handlers.organization.sections import filing_failures
from app_server.handlers.services import Services
from app_server.rpc.context import RequestContext, Routes
from app_server.threads.failures import InvalidThreadId
from app_server.threads.log.state.thread import ThreadState
from app_server.threads.organization.filing import FilingState
from protocol.errors import RpcError, invalid_params, invalid_request
from protocol.filing_records import (
    FiledProject,
    FilingRecord,
    ProjectDeleted,
    ProjectMoved,
    ProjectPut,
)
from protocol.metadata_records import ProjectChanged
from protocol.planning import (
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
from protocol.rollout import Record

MAX_PROJECTS = 10_000
MAX_CHARS = 65_536
"""Characters of a project's name, roots, metadata and idempotency key together."""
MAX_IMPORTED = 1000
"""Threads of one import."""


class ProjectHandlers:
    """The project/* methods."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._organization = services.store.organization
        self._importing = anyio.Lock()
        """Two imports of one key must not both take threads in."""
        self.routes: Routes = {
            "project/create": self.create,
            "project/delete": self.delete,
            "project/import": self.import_threads,
            "project/list": self.list_page,
            "project/move": self.move,
            "project/read": self.read,
            "project/update": self.update,
        }

    async def create(
        self, context: RequestContext, params: ProjectCreateParams
    ) -> ProjectCreateResponse:
        """Make a project; a key that was used before gives the project that it made."""
        project = self._new(params)
        made = await self._put(project, params.idempotency_key)
        if made.id == project.id:
            self._notify(context, made.id, "created")
        return ProjectCreateResponse(project=await self._show(made.id))

    async def import_threads(
        self, context: RequestContext, params: ProjectImportParams
    ) -> ProjectImportResponse:
        """Make a project of threads that there are.

        The threads are written first: the project is there when all of them are in it, and a
        client that never got its answer can ask again.
        """
        project, thread_ids = self._new(params), params.threads or []
        _check_imported(thread_ids)
        async with self._importing:
            with filing_failures():
                state = await self._organization.refresh()
            if _made_before(state, params.idempotency_key) is None:
                for thread_id in thread_ids:
                    await self._require_thread(thread_id)
                await self._assign_all(thread_ids, project.id)
            made = await self._put(project, params.idempotency_key)
        if made.id == project.id:
            self._notify(context, made.id, "created")
            for thread_id in thread_ids:
                event = ThreadProjectUpdatedNotification(thread_id=thread_id, project_id=made.id)
                context.after_answer(self._services.hub.broadcast, event)
        return ProjectImportResponse(project=await self._show(made.id))

    async def _require_thread(self, thread_id: str) -> None:
        try:
            is_stored = await self._services.store.exists(thread_id)
        except InvalidThreadId as exc:
            raise _no_thread(thread_id) from exc
        if not is_stored:
            raise _no_thread(thread_id)

    async def _assign_all(self, thread_ids: Sequence[str], project_id: str) -> None:
        """Put all threads into a project, or, as far as that can be done, none."""
        before: dict[str, str | None] = {}
        try:
            for thread_id in thread_ids:
                before[thread_id] = await self._assign(thread_id, project_id)
        except RpcError:
            for thread_id, earlier in before.items():
                with contextlib.suppress(RpcError):
                    await self._assign(thread_id, earlier)
            raise

    async def _assign(self, thread_id: str, project_id: str | None) -> str | None:
        """Return the project that the thread was in."""
        record = ProjectChanged(at_ms=self._services.clock.now_ms(), project_id=project_id)
        before: str | None = None

        def decide(state: ThreadState) -> Sequence[Record]:
            nonlocal before
            before = state.metadata.project_id
            return [record]

        with thread_failures(thread_id):
            await self._services.sessions.change(thread_id, decide)
        return before

    async def read(self, context: RequestContext, params: ProjectReadParams) -> ProjectReadResponse:
        """Show one project."""
        with filing_failures():
            _require(await self._organization.refresh(), params.project_id)
        return ProjectReadResponse(project=await self._show(params.project_id))

    async def list_page(
        self, context: RequestContext, params: ProjectListParams
    ) -> ProjectListResponse:
        """Page through the projects, in the manual order or by their last activity."""
        with filing_failures():
            state = await self._organization.refresh()
        recency = await self._organization.project_recency()
        return project_page(_all(state, recency), recency, params)

    async def move(self, context: RequestContext, params: ProjectMoveParams) -> ProjectMoveResponse:
        """Give a project another place in the manual order."""
        project_id, before = params.project_id, params.before_project_id
        at_ms = self._services.clock.now_ms()

        def decide(state: FilingState) -> Sequence[FilingRecord]:
            project = _require(state, project_id)
            if before == project_id:
                raise invalid_params(
                    f"project {before} cannot be moved before itself", "movedBeforeItself"
                )
            if before is not None and before not in state.projects:
                raise invalid_params(
                    f"before project not found: {before}", "projectNotFound", projectId=before
                )
            touched = project.model_copy(update={"updated_at": at_ms // 1000})
            return [
                ProjectPut(at_ms=at_ms, project=touched),
                ProjectMoved(at_ms=at_ms, project_id=project_id, before_id=before),
            ]

        with filing_failures():
            await self._organization.change(decide)
        self._notify(context, project_id, "updated")
        return ProjectMoveResponse()

    async def update(
        self, context: RequestContext, params: ProjectUpdateParams
    ) -> ProjectUpdateResponse:
        """Change what is given of a project; nothing given changes nothing."""
        changed: dict[str, object] = {}
        if params.name is not None:
            changed["name"] = _name(params.name)
        if params.roots is not None:
            changed["roots"] = _roots(params.roots)
        if params.metadata is not None:
            changed["metadata"] = params.metadata
        at_ms = self._services.clock.now_ms()

        def decide(state: FilingState) -> Sequence[FilingRecord]:
            before = _require(state, params.project_id)
            project = before.model_copy(update=changed)
            if project == before:
                return []
            project.updated_at = at_ms // 1000
            _check_size(project)
            return [ProjectPut(at_ms=at_ms, project=project)]

        with filing_failures():
            added = await self._organization.change(decide)
        if added:
            self._notify(context, params.project_id, "updated")
        return ProjectUpdateResponse(project=await self._show(params.project_id))

    async def delete(
        self, context: RequestContext, params: ProjectDeleteParams
    ) -> ProjectDeleteResponse:
        """Remove a project; its threads stay, in none."""

        def decide(state: FilingState) -> Sequence[FilingRecord]:
            _require(state, params.project_id)
            return [
                ProjectDeleted(at_ms=self._services.clock.now_ms(), project_id=params.project_id)
            ]

        with filing_failures():
            await self._organization.change(decide)
        self._notify(context, params.project_id, "deleted")
        return ProjectDeleteResponse()

    def _new(self, params: ProjectCreateParams | ProjectImportParams) -> FiledProject:
        name, roots = _name(params.name), _roots(params.roots)
        if not params.idempotency_key:
            raise invalid_params("idempotencyKey must not be empty", field="idempotencyKey")
        now_s = self._services.clock.now_ms() // 1000
        project = FiledProject(
            id=self._services.clock.new_id(),
            name=name,
            roots=roots,
            metadata=params.metadata or {},
            created_at=now_s,
            updated_at=now_s,
        )
        _check_size(project, params.idempotency_key)
        return project

    async def _put(self, project: FiledProject, key: str) -> FiledProject:
        made = project

        def decide(state: FilingState) -> Sequence[FilingRecord]:
            nonlocal made
            earlier = _made_before(state, key)
            if earlier is not None:
                made = earlier
                return []
            if len(state.projects) >= MAX_PROJECTS:
                raise invalid_request(
                    f"there are {MAX_PROJECTS} projects already", "tooManyProjects"
                )
            return [ProjectPut(at_ms=self._services.clock.now_ms(), project=project, key=key)]

        with filing_failures():
            await self._organization.change(decide)
        return made

    async def _show(self, project_id: str) -> Project:
        recency = await self._organization.project_recency()
        for project in _all(self._organization.state, recency):
            if project.id == project_id:
                return project
        raise _no_project(project_id)

    def _notify(self, context: RequestContext, project_id: str, change: ProjectChangeType) -> None:
        event = ProjectChangedNotification(project_id=project_id, change_type=change)
        context.after_answer(self._services.hub.broadcast, event)


def _all(state: FilingState, recency: Mapping[str, int]) -> Sequence[Project]:
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


def _made_before(state: FilingState, key: str) -> FiledProject | None:
    project_id = state.keys.get(key)
    if project_id is None:
        return None
    if project_id not in state.projects:
        raise invalid_params(f"idempotency key refers to deleted project: {key}", "projectNotFound")
    return state.projects[project_id]


def _require(state: FilingState, project_id: str) -> FiledProject:
    project = state.projects.get(project_id)
    if project is None:
        raise _no_project(project_id)
    return project


def _no_project(project_id: str) -> RpcError:
    return invalid_params(
        f"project not found: {project_id}", "projectNotFound", projectId=project_id
    )


def _no_thread(thread_id: str) -> RpcError:
    return invalid_params(f"thread not found: {thread_id}", "threadNotFound", threadId=thread_id)


def _check_imported(thread_ids: Sequence[str]) -> None:
    seen: set[str] = set()
    for thread_id in thread_ids:
        if thread_id in seen:
            raise invalid_params(f"duplicate thread id: {thread_id}", field="threads")
        seen.add(thread_id)
    if len(seen) > MAX_IMPORTED:
        raise invalid_params(f"threads must not hold more than {MAX_IMPORTED} ids", field="threads")


def _name(name: str) -> str:
    name = name.strip()
    if not name:
        raise invalid_params("project name must not be empty", "emptyName")
    return name


def _roots(roots: Sequence[ProjectRoot]) -> list[str]:
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


def _check_size(project: FiledProject, key: str = "") -> None:
    if len(project.model_dump_json()) + len(key) > MAX_CHARS:
        raise invalid_params(
            f"a project must have at most {MAX_CHARS} characters", "projectTooLarge"
        )
