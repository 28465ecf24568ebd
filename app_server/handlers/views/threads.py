"""From stored and loaded threads to what the wire shows of them."""

from typing import Any, TypeVar

from pydantic_core import from_json

from app_server.threads.log.state import ThreadMetadata, ThreadState, initial_read_state
from app_server.threads.organization import FilingState
from app_server.threads.rows import ThreadRow
from protocol.log.rollout import Settings
from protocol.server.lifecycle import PROTOCOL_VERSION
from protocol.threads.settings import ThreadSettings
from protocol.threads.start import ThreadSettingsResponse
from protocol.threads.thread import (
    GitInfo,
    NotLoadedThreadStatus,
    Thread,
    ThreadEnvironment,
    ThreadReadState,
    ThreadSection,
    ThreadStatus,
)
from protocol.turns.policy import (
    ActivePermissionProfile,
    DangerFullAccessSandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from protocol.turns.turn import Turn
from protocol.values import CollaborationMode
from protocol.values import Settings as CollaborationSettings


def thread_of_state(
    state: ThreadState,
    status: ThreadStatus,
    path: str | None,
    filing: FilingState,
    turns: list[Turn] | None = None,
) -> Thread:
    """Show a thread whose state is at hand; `path` None means that it is in memory alone.

    `filing` says which projects and sections there are.
    """
    created, settings, metadata = state.created, state.settings, state.metadata
    section, project_id = _filed(metadata, filing)
    loaded = not isinstance(status, NotLoadedThreadStatus)
    return Thread(
        id=state.id,
        session_id=state.id,
        forked_from_id=created.forked_from_id,
        environments=shown_environments(settings) if loaded else None,
        preview=state.preview,
        ephemeral=created.ephemeral,
        section=section,
        section_entered_at=_entered_at(metadata, section),
        project_id=project_id,
        history_mode="paginated",
        model_provider=settings.model_provider,
        model=settings.model,
        reasoning_effort=settings.effort,
        created_at=created.at_ms // 1000,
        updated_at=state.updated_at_ms // 1000,
        recency_at=state.recency_at_ms // 1000,
        status=status,
        path=path,
        cwd=settings.cwd,
        cli_version=created.cli_version,
        originator=created.originator,
        source=created.source,
        can_accept_direct_input=True if loaded else None,
        thread_source=created.thread_source,
        git_info=metadata.git_info,
        name=state.name,
        daybreak_enabled=metadata.daybreak_enabled,
        turns=turns or [],
    )


def thread_of_row(
    row: ThreadRow, status: ThreadStatus, path: str | None, filing: FilingState
) -> Thread:
    """Show a thread from the index."""
    section, project_id = _filed(row, filing)
    return Thread(
        id=row.id,
        session_id=row.id,
        preview=row.preview,
        ephemeral=False,
        section=section,
        section_entered_at=_entered_at(row, section),
        project_id=project_id,
        history_mode="paginated",
        model_provider=row.model_provider,
        model=row.model,
        reasoning_effort=row.effort,
        created_at=row.created_at_ms // 1000,
        updated_at=row.updated_at_ms // 1000,
        recency_at=row.recency_at_ms // 1000,
        status=status,
        path=path,
        cwd=row.cwd,
        cli_version=row.cli_version or PROTOCOL_VERSION,
        originator=row.originator,
        source=from_json(row.source),
        thread_source=row.thread_source,
        git_info=None if row.git_info is None else GitInfo.model_validate_json(row.git_info),
        name=row.name,
        daybreak_enabled=row.daybreak_enabled,
        turns=[],
    )


def _filed(
    thread: ThreadMetadata | ThreadRow, filing: FilingState
) -> tuple[ThreadSection | None, str | None]:
    """Leave out what was deleted since the thread was put there."""
    section = None if thread.section_id is None else filing.sections.get(thread.section_id)
    return section, thread.project_id if thread.project_id in filing.projects else None


def _entered_at(thread: ThreadMetadata | ThreadRow, section: ThreadSection | None) -> int | None:
    at_ms = thread.section_entered_at_ms
    return None if section is None or at_ms is None else at_ms // 1000


def read_state_of(state: ThreadState) -> ThreadReadState | None:
    """Show how far a thread was read; None where that is not kept."""
    if state.created.ephemeral or not state.has_content:
        return None
    return state.metadata.read_state or initial_read_state(state.id)


def read_state_of_row(row: ThreadRow) -> ThreadReadState:
    """Show how far a thread of the index was read."""
    if row.read_state is None:
        return initial_read_state(row.id)
    return ThreadReadState.model_validate_json(row.read_state)


Response = TypeVar("Response", bound=ThreadSettingsResponse)


def settings_response(
    kind: type[Response],
    settings: Settings,
    thread: Thread,
    instruction_sources: list[str],
    **members: Any,
) -> Response:
    """Build the answer to a start, resume or fork; `members` are particular to it."""
    return kind(
        thread=thread,
        model=settings.model,
        model_provider=settings.model_provider,
        service_tier=settings.service_tier,
        disabled_plugin_ids=settings.disabled_plugin_ids,
        cwd=settings.cwd,
        runtime_workspace_roots=_first_roots(settings),
        instruction_sources=instruction_sources,
        approval_policy=settings.approval_policy,
        approvals_reviewer=settings.approvals_reviewer,
        sandbox=settings.sandbox_policy,
        active_permission_profile=_profile(settings),
        reasoning_effort=settings.effort,
        **members,
    )


def thread_settings(settings: Settings) -> ThreadSettings:
    """Show the settings in force."""
    return ThreadSettings(
        disabled_plugin_ids=settings.disabled_plugin_ids,
        cwd=settings.cwd,
        environments=shown_environments(settings),
        approval_policy=settings.approval_policy,
        approvals_reviewer=settings.approvals_reviewer,
        sandbox_policy=settings.sandbox_policy,
        active_permission_profile=_profile(settings),
        model=settings.model,
        model_provider=settings.model_provider,
        service_tier=settings.service_tier,
        effort=settings.effort,
        summary=settings.summary,
        collaboration_mode=CollaborationMode(
            mode=settings.mode or "default",
            settings=CollaborationSettings(
                model=settings.model,
                reasoning_effort=settings.effort,
                developer_instructions=settings.mode_instructions,
            ),
        ),
        personality=settings.personality,
    )


def shown_environments(settings: Settings) -> list[ThreadEnvironment]:
    """Show the folders that a thread works in, by environment."""
    return [
        ThreadEnvironment(
            environment_id=folder.environment_id,
            cwd=folder.cwd,
            runtime_workspace_roots=folder.roots,
        )
        for folder in settings.working_folders
    ]


def _profile(settings: Settings) -> ActivePermissionProfile | None:
    if (own := settings.profile_in_force) is not None:
        return ActivePermissionProfile(id=own.id, extends=own.extends)
    match settings.sandbox_policy:
        case DangerFullAccessSandboxPolicy():
            return None
        case WorkspaceWriteSandboxPolicy():
            return ActivePermissionProfile(id=":workspace")
    return ActivePermissionProfile(id=":read-only")


def _first_roots(settings: Settings) -> list[str]:
    return next((folder.roots for folder in settings.working_folders), [])
