"""The settings in force for a thread, as the wire shows them."""

from typing import Any, TypeVar

from protocol.log.rollout import Settings
from protocol.threads.settings import ThreadSettings
from protocol.threads.start import ThreadSettingsResponse
from protocol.threads.thread import Thread, ThreadEnvironment
from protocol.turns.policy import (
    ActivePermissionProfile,
    DangerFullAccessSandboxPolicy,
    WorkspaceWriteSandboxPolicy,
)
from protocol.values import CollaborationMode
from protocol.values import Settings as CollaborationSettings

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
