"""thread/settings/*: what a thread's next turns work with."""

from protocol.model import WireModel, experimental
from protocol.thread_ids import ThreadIdParam
from protocol.threads.thread import ThreadEnvironment
from protocol.turns.policy import (
    ActivePermissionProfile,
    ApprovalsReviewer,
    AskForApproval,
    SandboxPolicy,
)
from protocol.turns.turn import TurnEnvironmentParams
from protocol.values import (
    AbsolutePathBuf,
    CollaborationMode,
    MultiAgentMode,
    Personality,
    ReasoningEffort,
    ReasoningSummary,
)


class ThreadSettingsUpdateParams(WireModel):
    """Change a thread's settings from the next turn on; null keeps what there is."""

    thread_id: ThreadIdParam
    disabled_plugin_ids: list[str] | None = None
    """Replaces the list; `[]` clears it."""
    cwd: str | None = None
    environments: list[TurnEnvironmentParams] | None = None
    """Replaces the selection; `[]` clears it. With `cwd` alone, the defaults for that folder."""
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    sandbox_policy: SandboxPolicy | None = None
    permissions: str | None = None
    """Id of a named permission profile; not together with `sandboxPolicy`."""
    model: str | None = None
    service_tier: str | None = None
    """Null clears the tier; leave it out to keep it."""
    effort: ReasoningEffort | None = None
    summary: ReasoningSummary | None = None
    collaboration_mode: CollaborationMode | None = None
    multi_agent_mode: MultiAgentMode | None = None
    """Outdated and ignored; set `effort` instead."""
    personality: Personality | None = None
    """Outdated in the reference, where `friendly` and `pragmatic` choose no style any more."""


class ThreadSettingsUpdateResponse(WireModel):
    """Nothing."""


class ThreadSettings(WireModel):
    """The settings in force for a thread."""

    disabled_plugin_ids: list[str] = []
    cwd: AbsolutePathBuf
    environments: list[ThreadEnvironment] | None = experimental()
    """The current one first; null when the server does not tell."""
    approval_policy: AskForApproval
    approvals_reviewer: ApprovalsReviewer
    sandbox_policy: SandboxPolicy
    active_permission_profile: ActivePermissionProfile | None = None
    model: str
    model_provider: str
    service_tier: str | None = None
    effort: ReasoningEffort | None = None
    summary: ReasoningSummary | None = None
    collaboration_mode: CollaborationMode
    multi_agent_mode: MultiAgentMode = experimental("explicitRequestOnly")
    """Outdated: always `explicitRequestOnly`."""
    personality: Personality | None = None
    """Outdated in the reference, where `friendly` and `pragmatic` choose no style any more."""


class ThreadSettingsUpdatedNotification(WireModel):
    """A turn's overrides became the thread's."""

    thread_id: str
    thread_settings: ThreadSettings
