"""project/*: named sets of folders that threads can belong to.

Source: docs/threads.md, "Projects and sections".
"""

import contextlib
from collections.abc import Sequence

import anyio

from app_server.handlers.errors import filing_failures, thread_failures, unknown_thread
from app_server.handlers.organization.project_values import (
    all_projects,
    check_imported,
    check_size,
    made_before,
    no_project,
    project_name,
    project_page,
    project_roots,
    required_project,
)
from app_server.handlers.services import Services
from app_server.rpc.context import RequestContext, Routes
from app_server.threads.failures import InvalidThreadId
from app_server.threads.filing import FilingState
from app_server.threads.log.state.thread import ThreadState
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
    ProjectUpdateParams,
    ProjectUpdateResponse,
    ThreadProjectUpdatedNotification,
)

MAX_PROJECTS = 10_000


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
        check_imported(thread_ids)
        async with self._importing:
            with filing_failures("read"):
                state = await self._organization.refresh()
            if made_before(state, params.idempotency_key) is None:
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
            raise unknown_thread(thread_id) from exc
        if not is_stored:
            raise unknown_thread(thread_id)

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
        with filing_failures("read"):
            required_project(await self._organization.refresh(), params.project_id)
        return ProjectReadResponse(project=await self._show(params.project_id))

    async def list_page(
        self, context: RequestContext, params: ProjectListParams
    ) -> ProjectListResponse:
        """Page through the projects, in the manual order or by their last activity."""
        with filing_failures("read"):
            state = await self._organization.refresh()
        recency = await self._organization.project_recency()
        return project_page(all_projects(state, recency), recency, params)

    async def move(self, context: RequestContext, params: ProjectMoveParams) -> ProjectMoveResponse:
        """Give a project another place in the manual order."""
        project_id, before = params.project_id, params.before_project_id
        at_ms = self._services.clock.now_ms()

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
            changed["name"] = project_name(params.name)
        if params.roots is not None:
            changed["roots"] = project_roots(params.roots)
        if params.metadata is not None:
            changed["metadata"] = params.metadata
        at_ms = self._services.clock.now_ms()

        def decide(state: FilingState) -> Sequence[FilingRecord]:
            before = required_project(state, params.project_id)
            project = before.model_copy(update=changed)
            if project == before:
                return []
            project.updated_at = at_ms // 1000
            check_size(project)
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
            required_project(state, params.project_id)
            return [
                ProjectDeleted(at_ms=self._services.clock.now_ms(), project_id=params.project_id)
            ]

        with filing_failures():
            await self._organization.change(decide)
        self._notify(context, params.project_id, "deleted")
        return ProjectDeleteResponse()

    def _new(self, params: ProjectCreateParams | ProjectImportParams) -> FiledProject:
        name, roots = project_name(params.name), project_roots(params.roots)
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
        check_size(project, params.idempotency_key)
        return project

    async def _put(self, project: FiledProject, key: str) -> FiledProject:
        made = project

        def decide(state: FilingState) -> Sequence[FilingRecord]:
            nonlocal made
            earlier = made_before(state, key)
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
        for project in all_projects(self._organization.state, recency):
            if project.id == project_id:
                return project
        raise no_project(project_id)

    def _notify(self, context: RequestContext, project_id: str, change: ProjectChangeType) -> None:
        event = ProjectChangedNotification(project_id=project_id, change_type=change)
        context.after_answer(self._services.hub.broadcast, event)
