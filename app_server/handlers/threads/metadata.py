"""thread/metadata/update, thread/name/set, thread/memoryMode/set, thread/memory/read.

Source: docs/threads.md.
"""

from collections.abc import Sequence

from app_server.handlers.errors import (
    known_filing,
    loaded_thread,
    no_rollout,
)
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.threads.stored import (
    change_thread,
    not_for_ephemeral,
    show_thread,
)
from app_server.threads.failures import ThreadNotFound
from app_server.threads.log.state import ThreadState
from app_server.threads.organization import FilingState
from protocol.jsonrpc.errors import invalid_request
from protocol.log.metadata import (
    DaybreakChanged,
    GitInfoChanged,
    MemoryModeChanged,
    ProjectChanged,
)
from protocol.log.rollout import NameChanged, Record
from protocol.organization.projects import ThreadProjectUpdatedNotification
from protocol.threads.metadata import (
    ThreadMemoryModeSetParams,
    ThreadMemoryModeSetResponse,
    ThreadMemoryReadParams,
    ThreadMemoryReadResponse,
    ThreadMetadataGitInfoUpdateParams,
    ThreadMetadataUpdateParams,
    ThreadMetadataUpdateResponse,
    ThreadSetNameParams,
    ThreadSetNameResponse,
)
from protocol.threads.notifications import (
    ThreadNameUpdatedNotification,
)
from protocol.threads.thread import GitInfo


@serves("thread/name/set")
async def set_name(context: RequestContext, params: ThreadSetNameParams) -> ThreadSetNameResponse:
    """Name a thread, loaded or not."""
    name = params.name.strip()
    if not name:
        raise invalid_request("thread name must not be empty", "emptyName")
    record = NameChanged(at_ms=context.services.clock.now_ms(), name=name)

    def decide(state: ThreadState) -> Sequence[Record]:
        if state.archived:
            raise ThreadNotFound(params.thread_id)
        return [record]

    await change_thread(
        context.services,
        params.thread_id,
        decide,
        missing=no_rollout(params.thread_id),
        ephemeral=not_for_ephemeral("metadata updates", params.thread_id),
    )
    event = ThreadNameUpdatedNotification(thread_id=params.thread_id, thread_name=name)
    context.after_answer(context.services.hub.broadcast, event)
    return ThreadSetNameResponse()


MAX_GIT_CHARS = 4096
"""Characters of each member of Git data."""


@serves("thread/metadata/update")
async def update_metadata(
    context: RequestContext, params: ThreadMetadataUpdateParams
) -> ThreadMetadataUpdateResponse:
    """Change the given metadata of a thread; members left out stay."""
    _check(params)
    thread_id = params.thread_id
    organization = context.services.store.organization
    filing = await known_filing(organization, is_asked_for=params.project_id is not None)
    if params.project_id and params.project_id not in filing.projects:
        raise invalid_request(
            f"project not found: {params.project_id}",
            "projectNotFound",
            projectId=params.project_id,
        )
    at_ms = context.services.clock.now_ms()
    state, added = await change_thread(
        context.services,
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
            context.after_answer(context.services.hub.broadcast, event)
    return ThreadMetadataUpdateResponse(thread=show_thread(context.services, state))


@serves("thread/memoryMode/set")
async def set_memory_mode(
    context: RequestContext, params: ThreadMemoryModeSetParams
) -> ThreadMemoryModeSetResponse:
    """Store whether the thread takes part in memories."""
    record = MemoryModeChanged(at_ms=context.services.clock.now_ms(), mode=params.mode)

    def decide(state: ThreadState) -> Sequence[Record]:
        if state.archived:
            raise ThreadNotFound(params.thread_id)
        return [] if state.metadata.memory_mode == params.mode else [record]

    await change_thread(
        context.services,
        params.thread_id,
        decide,
        missing=no_rollout(params.thread_id),
        ephemeral=not_for_ephemeral("metadata updates", params.thread_id),
    )
    return ThreadMemoryModeSetResponse()


@serves("thread/memory/read")
async def read_memory(
    context: RequestContext, params: ThreadMemoryReadParams
) -> ThreadMemoryReadResponse:
    """Answer null: there is no store of memories across threads."""
    loaded_thread(context.services.sessions, params.thread_id)
    return ThreadMemoryReadResponse(summary=None)


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
