"""thread/*: starting, finding, reading and putting away conversations."""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from protocol.model import Json, JsonObject, UInt32, WireModel, experimental
from protocol.policy import ApprovalsReviewer, AskForApproval, SandboxMode, SandboxPolicy
from protocol.turns import ReasoningSummary, Turn


class NotLoadedThreadStatus(WireModel):
    """Stored, not in memory."""

    type: Literal["notLoaded"] = "notLoaded"


class IdleThreadStatus(WireModel):
    """In memory, nothing running."""

    type: Literal["idle"] = "idle"


class SystemErrorThreadStatus(WireModel):
    """In memory, and cannot go on."""

    type: Literal["systemError"] = "systemError"


class ActiveThreadStatus(WireModel):
    """A turn runs."""

    type: Literal["active"] = "active"
    active_flags: list[Literal["waitingOnApproval", "waitingOnUserInput"]]


ThreadStatus: TypeAlias = Annotated[
    NotLoadedThreadStatus | IdleThreadStatus | SystemErrorThreadStatus | ActiveThreadStatus,
    Field(discriminator="type"),
]


class ThreadEnvironment(WireModel):
    """Where the thread's tools run."""

    environment_id: str
    cwd: str
    runtime_workspace_roots: list[str]


class Thread(WireModel):
    """One conversation. Times are Unix seconds."""

    id: str
    environments: list[ThreadEnvironment] | None = experimental()
    extra: JsonObject | None = experimental()
    session_id: str
    forked_from_id: str | None = None
    attached_to_thread_id: str | None = experimental()
    parent_thread_id: str | None = None
    preview: str
    """The first user message, cut to 1,024 characters."""
    ephemeral: bool
    section: JsonObject | None = None
    section_entered_at: int | None = None
    project_id: str | None
    history_mode: Literal["legacy", "paginated"] = "legacy"
    model_provider: str
    model: str | None = None
    reasoning_effort: str | None = None
    created_at: int
    updated_at: int
    recency_at: int | None = None
    status: ThreadStatus
    path: str | None = None
    """The rollout file; null for ephemeral threads."""
    cwd: str
    cli_version: str
    originator: str | None = None
    source: Json
    can_accept_direct_input: bool | None = experimental()
    thread_source: str | None = None
    agent_nickname: str | None = None
    agent_role: str | None = None
    git_info: JsonObject | None = None
    name: str | None = None
    daybreak_enabled: bool | None = experimental()
    turns: list[Turn]


class ThreadStartParams(WireModel):
    """Begin a conversation. What is null comes from the configuration."""

    model: str | None = None
    model_provider: str | None = None
    cwd: str | None = None
    """Relative paths count from the server's working directory."""
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    sandbox: SandboxMode | None = None
    config: JsonObject | None = None
    """Overrides of config.toml for this thread; keys may be dotted paths."""
    base_instructions: str | None = None
    developer_instructions: str | None = None
    personality: Literal["none", "friendly", "pragmatic"] | None = None
    ephemeral: bool | None = None
    """Keep it in memory only."""
    service_name: str | None = None
    service_tier: str | None = None
    session_start_source: Literal["startup", "clear"] | None = None
    thread_source: str | None = None
    dynamic_tools: list[JsonObject] | None = experimental()
    environments: list[JsonObject] | None = experimental()
    experimental_raw_events: bool = experimental(False)
    allow_provider_model_fallback: bool = experimental(False)
    history_mode: Literal["legacy", "paginated"] | None = experimental()
    permissions: str | None = experimental()
    project_id: str | None = experimental()
    multi_agent_mode: Json = experimental()
    daybreak_enabled: bool | None = experimental()
    mock_experimental_field: str | None = experimental()
    runtime_workspace_roots: list[str] | None = experimental()
    selected_capability_roots: list[JsonObject] | None = experimental()


class ActivePermissionProfile(WireModel):
    """The named permissions in force."""

    id: str
    extends: str | None = None


class ThreadSettingsResponse(WireModel):
    """The settings a thread runs with, beside the thread itself."""

    thread: Thread
    model: str
    model_provider: str
    service_tier: str | None = None
    disabled_plugin_ids: list[str] = []
    cwd: str
    runtime_workspace_roots: list[str] = experimental([])
    instruction_sources: list[str] = []
    approval_policy: AskForApproval
    approvals_reviewer: ApprovalsReviewer
    sandbox: SandboxPolicy
    active_permission_profile: ActivePermissionProfile | None = experimental()
    reasoning_effort: str | None = None
    multi_agent_mode: Json = experimental("explicitRequestOnly")


class ThreadStartResponse(ThreadSettingsResponse):
    """The new thread; the caller is subscribed to it."""


class ThreadResumeParams(WireModel):
    """Load a stored thread, or join a loaded one; the caller is subscribed to it."""

    thread_id: str
    model: str | None = None
    model_provider: str | None = None
    cwd: str | None = None
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    sandbox: SandboxMode | None = None
    config: JsonObject | None = None
    base_instructions: str | None = None
    developer_instructions: str | None = None
    personality: Literal["none", "friendly", "pragmatic"] | None = None
    service_tier: str | None = None
    exclude_turns: bool = False
    history: list[JsonObject] | None = experimental()
    initial_turns_page: JsonObject | None = experimental()
    path: str | None = experimental()
    permissions: str | None = experimental()
    runtime_workspace_roots: list[str] | None = experimental()


class ThreadResumeResponse(ThreadSettingsResponse):
    """The thread with its turns, unless they were excluded."""

    collaboration_mode: JsonObject | None = None
    initial_turns_page: JsonObject | None = experimental()
    turns_backwards_cursor: str | None = None
    items_backwards_cursor: str | None = None


class ThreadReadParams(WireModel):
    """Look at a thread without loading it."""

    thread_id: str
    include_turns: bool = False


class ThreadReadResponse(WireModel):
    """The thread; its turns too if they were asked for."""

    thread: Thread


class ThreadListParams(WireModel):
    """Page through stored threads, newest first."""

    cursor: str | None = None
    """Opaque, from the page before; null starts at the newest."""
    limit: UInt32 | None = None
    """Threads a page, at most 100; null means 25."""
    sort_key: Literal["created_at", "updated_at", "recency_at", "section_position"] | None = None
    sort_direction: Literal["asc", "desc"] | None = None
    model_providers: list[str] | None = None
    """Only these providers; null or empty means all."""
    source_kinds: list[str] | None = None
    """Only these kinds of source; null or empty means interactive ones."""
    originators: list[str] | None = None
    archived: bool | None = None
    """True lists the archived threads, and only them."""
    cwd: str | list[str] | None = None
    search_term: str | None = None
    """Case-insensitive part of the name or the preview."""
    section_id: str | None = None
    excluded_thread_ids: list[str] | None = None
    current_account_only: bool = False
    use_state_db_only: bool = False
    ancestor_thread_id: str | None = experimental()
    attached_to_thread_id: str | None = experimental()
    include_attached_threads: bool = experimental(False)
    parent_thread_id: str | None = experimental()
    project_id: str | None = experimental()


class ThreadListResponse(WireModel):
    """One page; `next_cursor` is null at the end."""

    data: list[Thread]
    next_cursor: str | None = None
    backwards_cursor: str | None = None


class ThreadLoadedListParams(WireModel):
    """Page through the ids of threads in memory."""

    cursor: str | None = None
    limit: UInt32 | None = None


class ThreadLoadedListResponse(WireModel):
    """Ids in the order in which the threads were loaded."""

    data: list[str]
    next_cursor: str | None = None


class ThreadUnsubscribeParams(WireModel):
    """Stop hearing of a thread on this connection."""

    thread_id: str


class ThreadUnsubscribeResponse(WireModel):
    """What there was to leave."""

    status: Literal["notLoaded", "notSubscribed", "unsubscribed"]


class ThreadSetNameParams(WireModel):
    """Give a thread a name of at least one visible character."""

    thread_id: str
    name: str


class ThreadSetNameResponse(WireModel):
    """Nothing: the name is in the log."""


class ThreadArchiveParams(WireModel):
    """Unload a thread and move it out of the default list."""

    thread_id: str


class ThreadArchiveResponse(WireModel):
    """Nothing."""


class ThreadUnarchiveParams(WireModel):
    """Bring an archived thread back into the default list."""

    thread_id: str


class ThreadUnarchiveResponse(WireModel):
    """The thread, not loaded."""

    thread: Thread


class ThreadInjectItemsParams(WireModel):
    """Append raw Responses API items to what the model sees, without a turn."""

    thread_id: str
    items: list[Json]


class ThreadInjectItemsResponse(WireModel):
    """Nothing: the items are in the log."""


class ThreadStartedNotification(WireModel):
    """A thread was started or loaded."""

    thread: Thread


class ThreadStatusChangedNotification(WireModel):
    """A thread became active, idle, or left memory."""

    thread_id: str
    status: ThreadStatus


class ThreadNameUpdatedNotification(WireModel):
    """A thread has a new name."""

    thread_id: str
    thread_name: str | None = None


class ThreadArchivedNotification(WireModel):
    """A thread was archived."""

    thread_id: str


class ThreadUnarchivedNotification(WireModel):
    """A thread was brought back."""

    thread_id: str


class ThreadClosedNotification(WireModel):
    """A thread left memory."""

    thread_id: str


class ThreadSettings(WireModel):
    """The settings in force for a thread."""

    disabled_plugin_ids: list[str] = []
    cwd: str
    environments: list[ThreadEnvironment] | None = experimental()
    approval_policy: AskForApproval
    approvals_reviewer: ApprovalsReviewer
    sandbox_policy: SandboxPolicy
    active_permission_profile: ActivePermissionProfile | None = None
    model: str
    model_provider: str
    service_tier: str | None = None
    effort: str | None = None
    summary: ReasoningSummary | None = None
    collaboration_mode: JsonObject
    personality: str | None = None
    multi_agent_mode: Json = experimental("explicitRequestOnly")


class ThreadSettingsUpdatedNotification(WireModel):
    """A turn's overrides became the thread's."""

    thread_id: str
    thread_settings: ThreadSettings


class ServerRequestResolvedNotification(WireModel):
    """A question of ours is settled; clients take it off their screens."""

    thread_id: str
    request_id: str | int
