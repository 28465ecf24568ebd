"""thread/start, thread/resume, thread/fork: how a client gets a thread to work with."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.model import Json, JsonObject, UInt32, UInt64, Variant, WireModel, experimental
from protocol.thread_ids import ThreadIdParam
from protocol.threads.thread import BudgetLimits, Thread, ThreadHistoryMode, ThreadSource
from protocol.turns.policy import (
    ActivePermissionProfile,
    ApprovalsReviewer,
    AskForApproval,
    SandboxMode,
    SandboxPolicy,
)
from protocol.turns.response_items import ResponseItem
from protocol.turns.turn import Turn, TurnEnvironmentParams, TurnItemsView
from protocol.values import (
    AbsolutePathBuf,
    CollaborationMode,
    EnvironmentPath,
    LegacyAppPathString,
    MultiAgentMode,
    Personality,
    ReasoningEffort,
    SortDirection,
)


class ThreadOverrides(WireModel):
    """Settings that a client may choose for a thread; null leaves them as they are configured."""

    model: str | None = None
    model_provider: str | None = None
    service_tier: str | None = None
    cwd: str | None = None
    """Relative paths count from the server's working directory."""
    runtime_workspace_roots: list[AbsolutePathBuf] | None = experimental()
    """Replaces the thread's roots."""
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    sandbox: SandboxMode | None = None
    permissions: str | None = experimental()
    """Id of a named permission profile; not together with `sandbox`."""
    config: JsonObject | None = None
    """Overrides of config.toml for this thread; keys may be dotted paths."""
    profile: str | None = experimental(extension=True)
    """Name of a file `NAME.config.toml` in the home folder whose settings lie below `config`."""
    base_instructions: str | None = None
    developer_instructions: str | None = None


class ThreadForkParams(ThreadOverrides):
    """Copy the history of a thread into a new one."""

    thread_id: ThreadIdParam
    experimental_prediction_mode: bool = experimental(False)
    """Copy the loaded source's settings too, to reuse its prompt cache; only when ephemeral."""
    experimental_disable_prediction_mcp: bool = experimental(False)
    """Without MCP servers; needs `experimentalPredictionMode`."""
    budget: BudgetLimits | None = experimental(extension=True)
    """What the new thread may use; null is no limit, whatever the source has."""
    last_turn_id: str | None = None
    """The last turn to copy, which must have ended; null copies all."""
    before_turn_id: str | None = experimental()
    """The first turn not to copy; not together with `lastTurnId`."""
    path: str | None = experimental()
    """Rollout file to copy from in place of `threadId`; empty counts as null."""
    ephemeral: bool = False
    """Keep the new thread in memory only."""
    attach_to_source: bool = experimental(False)
    """Keep it out of ordinary lists, as a part of its source; not for ephemeral threads."""
    thread_source: ThreadSource | None = None
    exclude_turns: bool = False
    """Leave `thread.turns` empty."""
    defer_goal_continuation: bool = experimental(False)
    """Take over the source's goal, but do not work on it before a turn is started."""


class ThreadSettingsResponse(WireModel):
    """A thread and the settings in force for it."""

    thread: Thread
    model: str
    model_provider: str
    service_tier: str | None = None
    disabled_plugin_ids: list[str] = []
    """Stored with the thread."""
    cwd: AbsolutePathBuf
    runtime_workspace_roots: list[AbsolutePathBuf] = experimental([])
    instruction_sources: list[LegacyAppPathString] = []
    """Instruction files that the thread has read."""
    approval_policy: AskForApproval
    approvals_reviewer: ApprovalsReviewer
    sandbox: SandboxPolicy
    """Clients that may see `activePermissionProfile` should go by that."""
    active_permission_profile: ActivePermissionProfile | None = experimental()
    reasoning_effort: ReasoningEffort | None = None
    multi_agent_mode: MultiAgentMode = experimental("explicitRequestOnly")
    """Outdated: always `explicitRequestOnly`."""
    stream_id: str | None = experimental(absent=True, extension=True)
    """Opaque; which stream of the thread's events the caller is subscribed to."""
    seq: UInt64 | None = experimental(absent=True, extension=True)
    """The last event of that stream that the answer takes into account."""


class ThreadForkResponse(ThreadSettingsResponse):
    """The new thread; the caller is subscribed to it."""


class ThreadResumeInitialTurnsPageParams(WireModel):
    """Which turns to put into the answer."""

    limit: UInt32 | None = None
    sort_direction: SortDirection | None = None
    """Null means `desc`."""
    items_view: TurnItemsView | None = None
    """Null means `summary`."""


class ThreadResumeParams(ThreadOverrides):
    """Load a stored thread, or join a loaded one; the caller is subscribed to it."""

    thread_id: ThreadIdParam
    history: list[ResponseItem] | None = experimental()
    """Resume from these items in place of the log."""
    path: str | None = experimental()
    """Rollout file to load in place of `threadId`; for a loaded thread it must be its own."""
    personality: Personality | None = None
    """Outdated in the reference, where `friendly` and `pragmatic` choose no style any more."""
    exclude_turns: bool = False
    """Leave `thread.turns` empty."""
    initial_turns_page: ThreadResumeInitialTurnsPageParams | None = experimental()
    """Puts a page of turns into the answer; null puts none."""
    stream_id: str | None = experimental(extension=True)
    """The stream that `afterSeq` counts in, from an earlier answer."""
    after_seq: UInt64 | None = experimental(extension=True)
    """The last event that the client has seen; what came after it is sent again."""
    unload_after_secs: UInt32 | None = experimental(extension=True)
    """When to unload the thread once it is quiet; null leaves that as it is."""


class TurnsPage(WireModel):
    """A page of turns, as `thread/turns/list` gives it."""

    data: list[Turn]
    next_cursor: str | None = None
    backwards_cursor: str | None = None
    """Opaque; as `cursor` with the opposite `sortDirection`. Null when the page is empty."""


class ThreadResumeResponse(ThreadSettingsResponse):
    """The thread with its turns, unless they were excluded."""

    collaboration_mode: CollaborationMode | None = None
    """Null from older servers."""
    initial_turns_page: TurnsPage | None = experimental()
    resync_required: bool | None = experimental(absent=True, extension=True)
    """Answers `afterSeq`. False: the events follow, and `thread.turns` is empty.

    True: they cannot be told any more, and `thread.turns` has what there is now.
    """
    turns_backwards_cursor: str | None = None
    """Opaque `cursor` for `thread/turns/list` with `desc`; the turn that it names comes along."""
    items_backwards_cursor: str | None = None
    """Opaque `cursor` for `thread/items/list` with `desc`; the item that it names comes along."""


class FunctionDynamicToolSpec(Variant):
    """A tool on its own."""

    type: Literal["function"] = "function"
    defer_loading: bool = False
    """Tell the model of it only when it looks for tools."""
    description: str
    input_schema: Json
    """JSON Schema of the arguments."""
    name: str


class FunctionDynamicToolNamespaceTool(Variant):
    """A tool in a namespace."""

    type: Literal["function"] = "function"
    defer_loading: bool = False
    """Tell the model of it only when it looks for tools."""
    description: str
    input_schema: Json
    """JSON Schema of the arguments."""
    name: str


DynamicToolNamespaceTool = TypeAliasType(
    "DynamicToolNamespaceTool", FunctionDynamicToolNamespaceTool
)
"""What a namespace can hold."""


class NamespaceDynamicToolSpec(Variant):
    """Tools under a common name."""

    type: Literal["namespace"] = "namespace"
    description: str
    name: str
    tools: list[DynamicToolNamespaceTool]


DynamicToolSpec = TypeAliasType(
    "DynamicToolSpec",
    Annotated[FunctionDynamicToolSpec | NamespaceDynamicToolSpec, Field(discriminator="type")],
)
"""A tool that the client runs, or a namespace of them."""


class EnvironmentCapabilityRootLocation(Variant):
    """A folder in an environment."""

    type: Literal["environment"] = "environment"
    environment_id: str
    path: EnvironmentPath
    """Absolute, in that environment."""


CapabilityRootLocation = TypeAliasType("CapabilityRootLocation", EnvironmentCapabilityRootLocation)
"""Where a capability root is found."""


class SelectedCapabilityRoot(WireModel):
    """A folder that the user chose and that brings capabilities with it."""

    id: str
    """Chosen by the platform that offers the root."""
    location: CapabilityRootLocation


ThreadStartSource = TypeAliasType("ThreadStartSource", Literal["startup", "clear"])
"""What the user did to get a new thread: started the program, or cleared the old one."""


class ThreadStartParams(ThreadOverrides):
    """Begin a conversation. What is null comes from the configuration."""

    thread_id: str | None = experimental(extension=True)
    """A UUID that the client chose, in small letters; the same request again starts no other."""
    unload_after_secs: UInt32 | None = experimental(extension=True)
    """When to unload the thread once it is quiet; null means the server's delay."""
    budget: BudgetLimits | None = experimental(extension=True)
    """What the thread may use; null is no limit."""

    allow_provider_model_fallback: bool = experimental(False)
    """If the provider's list has no such model, take its default."""
    service_name: str | None = None
    personality: Personality | None = None
    """Outdated in the reference, where `friendly` and `pragmatic` choose no style any more."""
    multi_agent_mode: MultiAgentMode | None = experimental()
    """Outdated and ignored; set the reasoning effort instead."""
    ephemeral: bool | None = None
    """Keep it in memory only."""
    history_mode: ThreadHistoryMode | None = experimental()
    session_start_source: ThreadStartSource | None = None
    thread_source: ThreadSource | None = None
    project_id: str | None = experimental()
    """Project to put the thread into."""
    daybreak_enabled: bool | None = experimental()
    """Only kept for the client; not for ephemeral threads."""
    environments: list[TurnEnvironmentParams] | None = experimental()
    """The first one is the current one; null means the default, `[]` none."""
    dynamic_tools: list[DynamicToolSpec] | None = experimental()
    """Tools that the client runs, at `item/tool/call`."""
    selected_capability_roots: list[SelectedCapabilityRoot] | None = experimental()
    mock_experimental_field: str | None = experimental()
    """For tests of the opt-in; without effect."""
    experimental_raw_events: bool = experimental(False)
    """Tell of raw Responses API items as well."""


class ThreadStartResponse(ThreadSettingsResponse):
    """The new thread; the caller is subscribed to it."""
