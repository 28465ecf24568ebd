"""thread/metadata/update, thread/memoryMode/set, thread/memory/read, thread/readState/update.

Source: docs/threads.md.
"""

from collections.abc import Sequence

from app_server.handlers.errors import known_filing, loaded_thread, no_rollout, not_loaded
from app_server.handlers.services import Services
from app_server.handlers.threads.changes import ThreadChanges, not_for_ephemeral
from app_server.rpc.context import RequestContext, Routes
from app_server.threads.failures import ThreadNotFound
from app_server.threads.filing import FilingState
from app_server.threads.log.state.thread import ThreadState, initial_read_state, new_revision
from protocol.jsonrpc.errors import invalid_request
from protocol.log.metadata import (
    DaybreakChanged,
    GitInfoChanged,
    MemoryModeChanged,
    ProjectChanged,
    ReadStateChanged,
)
from protocol.log.rollout import Record
from protocol.organization.projects import ThreadProjectUpdatedNotification
from protocol.threads.history import ThreadReadStateUpdateParams, ThreadReadStateUpdateResponse
from protocol.threads.metadata import (
    ThreadMemoryModeSetParams,
    ThreadMemoryModeSetResponse,
    ThreadMemoryReadParams,
    ThreadMemoryReadResponse,
    ThreadMetadataGitInfoUpdateParams,
    ThreadMetadataUpdateParams,
    ThreadMetadataUpdateResponse,
)
from protocol.threads.notifications import ThreadReadStateChangedNotification
from protocol.threads.thread import GitInfo, ThreadStartThreadUnreadPosition

MAX_GIT_CHARS = 4096
"""Characters of each member of Git data."""


class ThreadMetadataHandlers:
    """What is stored about a thread."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._changes = ThreadChanges(services)
        self.routes: Routes = {
            "thread/metadata/update": self.update,
            "thread/memoryMode/set": self.set_memory_mode,
            "thread/memory/read": self.read_memory,
            "thread/readState/update": self.update_read_state,
        }

    async def update(
        self, context: RequestContext, params: ThreadMetadataUpdateParams
    ) -> ThreadMetadataUpdateResponse:
        """Change what is asked for; what is left out stays."""
        _check(params)
        thread_id = params.thread_id
        organization = self._services.store.organization
        filing = await known_filing(organization, is_asked_for=params.project_id is not None)
        if params.project_id and params.project_id not in filing.projects:
            raise invalid_request(
                f"project not found: {params.project_id}",
                "projectNotFound",
                projectId=params.project_id,
            )
        at_ms = self._services.clock.now_ms()
        state, added = await self._changes.write(
            thread_id,
            lambda state: _records(state, params, filing, at_ms),
            missing=no_rollout(thread_id),
            ephemeral=not_for_ephemeral("metadata updates", thread_id),
        )
        for record in added:
            if isinstance(record, ProjectChanged):
                event = ThreadProjectUpdatedNotification(
                    thread_id=thread_id, project_id=record.project_id
                )
                context.after_answer(self._services.hub.broadcast, event)
        return ThreadMetadataUpdateResponse(thread=self._changes.show(state))

    async def set_memory_mode(
        self, context: RequestContext, params: ThreadMemoryModeSetParams
    ) -> ThreadMemoryModeSetResponse:
        """Store whether the thread takes part in memories."""
        record = MemoryModeChanged(at_ms=self._services.clock.now_ms(), mode=params.mode)

        def decide(state: ThreadState) -> Sequence[Record]:
            if state.archived:
                raise ThreadNotFound(params.thread_id)
            return [] if state.metadata.memory_mode == params.mode else [record]

        await self._changes.write(
            params.thread_id,
            decide,
            missing=no_rollout(params.thread_id),
            ephemeral=not_for_ephemeral("metadata updates", params.thread_id),
        )
        return ThreadMemoryModeSetResponse()

    async def read_memory(
        self, context: RequestContext, params: ThreadMemoryReadParams
    ) -> ThreadMemoryReadResponse:
        """Answer null: there is no store of memories across threads."""
        loaded_thread(self._services.sessions, params.thread_id)
        return ThreadMemoryReadResponse(summary=None)

    async def update_read_state(
        self, context: RequestContext, params: ThreadReadStateUpdateParams
    ) -> ThreadReadStateUpdateResponse:
        """Mark a thread as read or unread, unless its read state is another than the user saw."""
        unread = params.operation.type == "unread"
        record = ReadStateChanged(
            at_ms=self._services.clock.now_ms(),
            first_unread=ThreadStartThreadUnreadPosition() if unread else None,
            revision=new_revision(),
        )

        def decide(state: ThreadState) -> Sequence[Record]:
            current = state.metadata.read_state or initial_read_state(state.id)
            if current.revision != params.expected_revision:
                raise invalid_request(
                    "read state changed",
                    "readStateConflict",
                    reason="readStateConflict",
                    readState=current.model_dump(mode="json"),
                )
            return [record]

        state, _ = await self._changes.write(
            params.thread_id,
            decide,
            missing=not_loaded(params.thread_id),
            ephemeral=invalid_request(
                "thread read state unavailable", "ephemeralThread", threadId=params.thread_id
            ),
        )
        assert state.metadata.read_state is not None
        event = ThreadReadStateChangedNotification(
            thread_id=params.thread_id, read_state=state.metadata.read_state
        )
        context.after_answer(self._services.hub.emit, params.thread_id, event)
        return ThreadReadStateUpdateResponse(read_state=state.metadata.read_state)


def _check(params: ThreadMetadataUpdateParams) -> None:
    said = (params.git_info, params.project_id, params.daybreak_enabled)
    if all(member is None for member in said):
        raise invalid_request(
            "thread metadata update must include at least one field", "emptyUpdate"
        )
    git = params.git_info
    if git is None:
        return
    if not git.model_fields_set:
        raise invalid_request("gitInfo must include at least one field", "emptyUpdate")
    for name, value in (("sha", git.sha), ("branch", git.branch), ("originUrl", git.origin_url)):
        if value is not None and not value.strip():
            raise invalid_request(f"gitInfo.{name} must not be empty", "invalidGitInfo")
        if value is not None and len(value) > MAX_GIT_CHARS:
            rule = f"must have at most {MAX_GIT_CHARS} characters"
            raise invalid_request(f"gitInfo.{name} {rule}", "invalidGitInfo")


def _records(
    state: ThreadState, params: ThreadMetadataUpdateParams, filing: FilingState, at_ms: int
) -> Sequence[Record]:
    records: list[Record] = []
    if params.git_info is not None:
        git_info = _git_info(state.metadata.git_info, params.git_info)
        records.append(GitInfoChanged(at_ms=at_ms, git_info=git_info))
    if params.daybreak_enabled is not None:
        records.append(DaybreakChanged(at_ms=at_ms, enabled=params.daybreak_enabled))
    if params.project_id is not None:
        current = state.metadata.project_id
        shown = current if current in filing.projects else None
        project_id = params.project_id or None
        if project_id != shown:
            records.append(ProjectChanged(at_ms=at_ms, project_id=project_id))
    return records


def _git_info(current: GitInfo | None, update: ThreadMetadataGitInfoUpdateParams) -> GitInfo | None:
    changed = {
        name: value and value.strip() for name, value in update if name in update.model_fields_set
    }
    merged = (current or GitInfo()).model_copy(update=changed)
    return merged if any(value is not None for _, value in merged) else None
