"""thread/*, serverRequest/resolved: conversations, their settings, and who hears of them.

Goals, queues and sections are in `planning`; turns, items and searches of history in `history`.
"""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.jsonrpc.frames import RequestId
from protocol.model import (
    Int32,
    Int64,
    Json,
    JsonObject,
    OpenEnum,
    OpenUnion,
    SnakeVariant,
    UInt32,
    UInt64,
    Variant,
    WireModel,
    absent_if_none,
    experimental,
)
from protocol.thread_ids import ThreadIdParam
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
    AgentPath,
    CollaborationMode,
    EnvironmentPath,
    LegacyAppPathString,
    MultiAgentMode,
    Personality,
    ReasoningEffort,
    ReasoningSummary,
    SortDirection,
    ThreadId,
)


class ThreadArchiveParams(WireModel):
    """Unload a thread and move it out of the default list."""

    thread_id: ThreadIdParam


class ThreadArchiveResponse(WireModel):
    """Nothing."""


class ThreadDecrementElicitationParams(WireModel):
    """Say that a question to the user outside of this protocol is settled."""

    thread_id: ThreadIdParam


class ThreadDecrementElicitationResponse(WireModel):
    """How many such questions are still open."""

    count: Int64
    paused: bool
    """Timeouts still do not count."""


class ThreadDeleteParams(WireModel):
    """Remove a thread for good."""

    thread_id: ThreadIdParam


class ThreadDeleteResponse(WireModel):
    """Nothing: the thread is gone."""


ThreadSource = TypeAliasType("ThreadSource", str)
"""What the client says a thread is for, in a word of its own; for statistics."""


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


class GitInfo(WireModel):
    """Where the repository stood when the thread was created."""

    sha: str | None = None
    branch: str | None = None
    origin_url: str | None = None


class CustomSessionSource(Variant, extra="forbid"):
    """A kind of program that has no word of its own."""

    custom: str


class OtherSubAgentSource(Variant, extra="forbid"):
    """A kind of sub-agent that has no word of its own."""

    other: str


class ThreadSpawn(SnakeVariant):
    """Which agent started a sub-agent, and as what."""

    agent_nickname: str | None = None
    agent_path: AgentPath | None = None
    agent_role: str | None = None
    depth: Int32
    """How deep in the tree of agents."""
    parent_thread_id: ThreadId


class ThreadSpawnSubAgentSource(SnakeVariant, extra="forbid"):
    """An agent started it."""

    thread_spawn: ThreadSpawn


SubAgentSource = TypeAliasType(
    "SubAgentSource",
    OpenUnion[
        OpenEnum[Literal["review", "compact", "memory_consolidation"]]
        | ThreadSpawnSubAgentSource
        | OtherSubAgentSource
    ],
)
"""What started a sub-agent."""


class SubAgentSessionSource(Variant, extra="forbid"):
    """The thread of a sub-agent."""

    sub_agent: SubAgentSource


SessionSource = TypeAliasType(
    "SessionSource",
    OpenUnion[
        OpenEnum[Literal["cli", "vscode", "exec", "appServer", "unknown"]]
        | CustomSessionSource
        | SubAgentSessionSource
    ],
)
"""The kind of program that created a thread."""


class ThreadEnvironment(WireModel):
    """Where the thread's tools run."""

    environment_id: str
    """Says nothing about whether the environment is connected."""
    cwd: LegacyAppPathString
    runtime_workspace_roots: list[LegacyAppPathString]


class ThreadExtra(WireModel):
    """Room for what a server wants to add; nothing is defined."""


ThreadHistoryMode = TypeAliasType("ThreadHistoryMode", Literal["legacy", "paginated"])
"""How the history is kept: read whole, or in pages."""


class ThreadSectionAppearance(WireModel):
    """How a section looks."""

    icon: str | None = None
    color: str | None = None


class ThreadSection(WireModel):
    """A group of threads that the user made."""

    id: str
    """Stays the same when the section is renamed."""
    name: str
    appearance: ThreadSectionAppearance | None = None


ThreadActiveFlag = TypeAliasType(
    "ThreadActiveFlag", OpenEnum[Literal["waitingOnApproval", "waitingOnUserInput"]]
)
"""What a running turn waits for."""


class ActiveThreadStatus(Variant):
    """A turn runs."""

    type: Literal["active"] = "active"
    active_flags: list[ThreadActiveFlag]


class IdleThreadStatus(Variant):
    """In memory, nothing running."""

    type: Literal["idle"] = "idle"


class NotLoadedThreadStatus(Variant):
    """Stored, not in memory."""

    type: Literal["notLoaded"] = "notLoaded"


class SystemErrorThreadStatus(Variant):
    """In memory, and cannot go on."""

    type: Literal["systemError"] = "systemError"


ThreadStatus = TypeAliasType(
    "ThreadStatus",
    OpenUnion[
        Annotated[
            NotLoadedThreadStatus | IdleThreadStatus | SystemErrorThreadStatus | ActiveThreadStatus,
            Field(discriminator="type"),
        ]
    ],
)
"""Whether a thread is in memory, and what it does there."""


class Thread(WireModel):
    """One conversation. Times are Unix seconds."""

    id: str
    environments: list[ThreadEnvironment] | None = experimental()
    """The current one first; null when the thread is not in memory."""
    extra: ThreadExtra | None = experimental()
    session_id: str
    """Shared by all threads of one tree."""
    forked_from_id: str | None = None
    """The thread that this one was copied from."""
    attached_to_thread_id: str | None = experimental()
    """The thread that this one is a part of; not in ordinary lists."""
    parent_thread_id: str | None = None
    """For a sub-agent, its parent's thread."""
    preview: str
    """The first user message, cut to 1,024 characters."""
    ephemeral: bool
    section: ThreadSection | None = None
    section_entered_at: Int64 | None = None
    """When it was put into its section."""
    project_id: str | None
    """Null when it belongs to no project."""
    history_mode: ThreadHistoryMode = "legacy"
    model_provider: str
    model: str | None = None
    """The one set now, or the last one stored; null when it is not known."""
    reasoning_effort: ReasoningEffort | None = None
    created_at: Int64
    updated_at: Int64
    recency_at: Int64 | None = None
    """When its last turn began, or it was created."""
    status: ThreadStatus
    path: str | None = None
    """The rollout file; null for ephemeral threads."""
    cwd: AbsolutePathBuf
    cli_version: str
    """Protocol version of the server that created it."""
    originator: str | None = None
    """Name of the client that created it; null when it is not known."""
    source: SessionSource
    can_accept_direct_input: bool | None = experimental()
    """Null when the thread is not in memory."""
    thread_source: ThreadSource | None = None
    agent_nickname: str | None = None
    """Set for sub-agents."""
    agent_role: str | None = None
    git_info: GitInfo | None = None
    name: str | None = None
    daybreak_enabled: bool | None = experimental()
    """As the client stored it, without effect on turns; null when it never did."""
    turns: list[Turn]
    """Filled in the answers of resume and fork, and of `thread/read` with `includeTurns`."""


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


class ThreadIncrementElicitationParams(WireModel):
    """Say that the user is asked something outside of this protocol: timeouts pause."""

    thread_id: ThreadIdParam


class ThreadIncrementElicitationResponse(WireModel):
    """How many such questions are open now."""

    count: Int64
    paused: bool
    """Timeouts do not count."""


class ThreadInjectItemsParams(WireModel):
    """Append raw Responses API items to what the model sees, without a turn."""

    thread_id: ThreadIdParam
    items: list[Json]
    """At least one; an invalid one refuses them all."""


class ThreadInjectItemsResponse(WireModel):
    """Nothing: the items are in the log."""


ThreadListCwdFilter = TypeAliasType("ThreadListCwdFilter", str | list[str])
"""One folder or several; a thread's working directory must equal one of them."""


ThreadSortKey = TypeAliasType(
    "ThreadSortKey", Literal["created_at", "updated_at", "recency_at", "section_position"]
)
"""What a list of threads is sorted by."""


ThreadSourceKind = TypeAliasType(
    "ThreadSourceKind",
    Literal[
        "cli",
        "vscode",
        "exec",
        "appServer",
        "subAgent",
        "subAgentReview",
        "subAgentCompact",
        "subAgentThreadSpawn",
        "subAgentOther",
        "unknown",
    ],
)
"""A kind of `source` to filter threads by."""


class ThreadListParams(WireModel):
    """Page through stored threads, newest first."""

    include_attached_threads: bool = experimental(False)
    """With `searchTerm`: find threads that are parts of others too."""
    current_account_only: bool = False
    cursor: str | None = None
    """Opaque, from the page before; null starts at the newest."""
    limit: UInt32 | None = None
    """Threads a page, at most 100; null means 25."""
    excluded_thread_ids: list[ThreadIdParam] | None = None
    """At most 100; send the same with each page."""
    sort_key: ThreadSortKey | None = None
    """Null means `created_at`."""
    sort_direction: SortDirection | None = None
    """Null means `desc`."""
    model_providers: list[str] | None = None
    """Only these providers; null or empty means all."""
    source_kinds: list[ThreadSourceKind] | None = None
    """Only these kinds of source; null or empty means all."""
    originators: list[str] | None = None
    """Only threads that these clients created; null or empty means all."""
    archived: bool | None = None
    """True lists the archived threads, and only them."""
    section_id: str | None = None
    """Leave out for all sections; null means threads that are in none."""
    project_id: str | None = experimental()
    """Leave out for all projects; null means threads that are in none."""
    cwd: ThreadListCwdFilter | None = None
    use_state_db_only: bool = False
    """Trust the index; do not look into the logs."""
    search_term: str | None = None
    """Case-insensitive part of the name or the preview."""
    parent_thread_id: ThreadIdParam | None = experimental()
    """Only direct sub-agents of it; not together with `ancestorThreadId`."""
    ancestor_thread_id: ThreadIdParam | None = experimental()
    """Only sub-agents below it, at any depth."""
    attached_to_thread_id: ThreadIdParam | None = experimental()
    """Only threads that are parts of it; not together with the two above."""


class ThreadStartThreadUnreadPosition(Variant):
    """All of it: the user marked the thread as unread."""

    type: Literal["threadStart"] = "threadStart"


class TurnThreadUnreadPosition(Variant):
    """From this turn on."""

    type: Literal["turn"] = "turn"
    turn_id: str


ThreadUnreadPosition = TypeAliasType(
    "ThreadUnreadPosition",
    OpenUnion[
        Annotated[
            ThreadStartThreadUnreadPosition | TurnThreadUnreadPosition, Field(discriminator="type")
        ]
    ],
)
"""Where the unread part of a thread begins."""


class ThreadReadState(WireModel):
    """How far the user has read a thread."""

    first_unread: ThreadUnreadPosition | None = None
    """Null when all is read."""
    revision: str
    """Opaque; for `expectedRevision` of `thread/readState/update`."""


class ThreadListResponse(WireModel):
    """One page; `nextCursor` is null at the end."""

    data: list[Thread]
    read_states: dict[str, ThreadReadState] | None = experimental()
    """By thread id, for the threads that have one; null when none are kept."""
    next_cursor: str | None = None
    backwards_cursor: str | None = None
    """Opaque; as `cursor` with the opposite `sortDirection`. Null when the page is empty."""


class ThreadLoadedListParams(WireModel):
    """Page through the ids of threads in memory."""

    cursor: str | None = None
    limit: UInt32 | None = None
    """Ids a page; null means all."""


class ThreadLoadedListResponse(WireModel):
    """Ids in the order in which the threads were loaded."""

    data: list[str]
    next_cursor: str | None = None


class ThreadMemoryReadParams(WireModel):
    """Read what is remembered for a loaded thread."""

    thread_id: ThreadIdParam


class ThreadMemoryReadResponse(WireModel):
    """The memory, summed up."""

    summary: str | None = None
    """Null when memories are off or there are none."""


ThreadMemoryMode = TypeAliasType("ThreadMemoryMode", Literal["enabled", "disabled"])
"""Whether a thread takes part in memories."""


class ThreadMemoryModeSetParams(WireModel):
    """Switch memories on or off for a thread."""

    thread_id: ThreadIdParam
    mode: ThreadMemoryMode


class ThreadMemoryModeSetResponse(WireModel):
    """Nothing."""


class ThreadMetadataGitInfoUpdateParams(WireModel):
    """What to change of the stored Git data: left out keeps, null clears."""

    sha: str | None = None
    branch: str | None = None
    origin_url: str | None = None


class ThreadMetadataUpdateParams(WireModel):
    """Change what is stored about a thread; what is left out stays."""

    thread_id: ThreadIdParam
    project_id: str | None = experimental()
    """An existing project; empty takes the thread out of its project."""
    git_info: ThreadMetadataGitInfoUpdateParams | None = None
    daybreak_enabled: bool | None = experimental()
    """Only kept for the client; turns do not go by it."""


class ThreadMetadataUpdateResponse(WireModel):
    """The thread as it is now."""

    thread: Thread


class ThreadSetNameParams(WireModel):
    """Give a thread a name of at least one visible character."""

    thread_id: ThreadIdParam
    name: str


class ThreadSetNameResponse(WireModel):
    """Nothing: the name is in the log."""


class ThreadReadParams(WireModel):
    """Look at a thread without loading it."""

    thread_id: ThreadIdParam
    include_turns: bool = False
    """Long histories come cut; `thread/turns/list` has them in pages."""


class ThreadReadResponse(WireModel):
    """The thread; its turns too if they were asked for."""

    thread: Thread
    read_state: ThreadReadState | None = experimental()
    """Null when none is kept."""


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


class ThreadRevertParams(WireModel):
    """Drop a turn and all after it from the history; files stay as they are."""

    thread_id: ThreadIdParam
    before_turn_id: str
    """The first turn to drop."""


class ThreadRevertResponse(WireModel):
    """The thread without its turns, and where to read those that are left."""

    thread: Thread
    """Its `turns` is empty."""
    turns_backwards_cursor: str | None = None
    """Opaque `cursor` for `thread/turns/list` with `desc`; the turn that it names comes along."""
    items_backwards_cursor: str | None = None
    """Opaque `cursor` for `thread/items/list` with `desc`; the item that it names comes along."""


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


class ThreadUnarchiveParams(WireModel):
    """Bring an archived thread back into the default list."""

    thread_id: ThreadIdParam


class ThreadUnarchiveResponse(WireModel):
    """The thread, not loaded."""

    thread: Thread


class ThreadUnsubscribeParams(WireModel):
    """Stop hearing of a thread on this connection."""

    thread_id: ThreadIdParam
    unload: bool | None = experimental(extension=True)
    """True lets go of the thread at once, if nobody else listens and nothing runs."""


ThreadUnsubscribeStatus = TypeAliasType(
    "ThreadUnsubscribeStatus", OpenEnum[Literal["notLoaded", "notSubscribed", "unsubscribed"]]
)
"""What became of the caller's subscription."""


class ThreadUnsubscribeResponse(WireModel):
    """What there was to leave."""

    status: ThreadUnsubscribeStatus
    unloaded: bool | None = experimental(absent=True, extension=True)
    """Whether the thread is out of memory, and another process may write it; if that was asked."""


class ServerRequestResolvedNotification(WireModel):
    """A question of ours is settled; clients take it off their screens."""

    thread_id: str
    request_id: RequestId
    """The `id` under which the question was asked."""


class ThreadArchivedNotification(WireModel):
    """A thread was archived."""

    thread_id: str


class ThreadClosedNotification(WireModel):
    """A thread left memory."""

    thread_id: str


class ThreadDeletedNotification(WireModel):
    """A thread was removed for good."""

    thread_id: str


class ThreadNameUpdatedNotification(WireModel):
    """A thread has a new name."""

    thread_id: str
    thread_name: str | None = absent_if_none()
    """Absent when the thread has no name any more."""


class ThreadRevertedNotification(WireModel):
    """A thread lost its last turns; what clients show of them is out of date."""

    thread_id: str


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


class ThreadStartedNotification(WireModel):
    """A thread was started or loaded."""

    thread: Thread


class ThreadStatusChangedNotification(WireModel):
    """A thread became active, idle, or left memory."""

    thread_id: str
    status: ThreadStatus


class ThreadUnarchivedNotification(WireModel):
    """A thread was brought back."""

    thread_id: str


class ThreadQueueChangedNotification(WireModel):
    """A thread's queue changed: read it again with `thread/queue/list`."""

    thread_id: str
