"""A thread as clients see it, and the values that it is made of.

A goal and an attachment too, as they stand in its log: every server needs them from its start.
"""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.model import (
    Int32,
    Int64,
    Json,
    OpenEnum,
    OpenUnion,
    SnakeVariant,
    Variant,
    WireModel,
    experimental,
)
from protocol.turns.turn import Turn
from protocol.values import (
    AbsolutePathBuf,
    AgentPath,
    LegacyAppPathString,
    ReasoningEffort,
    ThreadId,
)

ThreadSource = TypeAliasType("ThreadSource", str)
"""What the client says a thread is for, in a word of its own; for statistics."""


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
    """In memory, and its last turn failed; the next one may be started."""

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


ThreadMemoryMode = TypeAliasType("ThreadMemoryMode", Literal["enabled", "disabled"])
"""Whether a thread takes part in memories."""


ThreadGoalStatus = TypeAliasType(
    "ThreadGoalStatus",
    Literal["active", "paused", "blocked", "usageLimited", "budgetLimited", "complete"],
)
"""How a goal stands: pursued, held up for some reason, or reached."""


class MoneyAmount(WireModel):
    """An amount of money."""

    currency: str
    """Three capital letters."""
    amount: str
    """A decimal number, exact."""


class BudgetLimits(WireModel):
    """Limits from the beginning of a thread on; null is no limit."""

    tokens: Int64 | None = None
    """Input and output, as models count them."""
    cost: MoneyAmount | None = None
    """At the prices of the settings."""
    turns: Int64 | None = None
    """Turns that ask a model."""
    seconds: Int64 | None = None
    """Of models and tools."""


class ThreadGoal(WireModel):
    """What a thread works towards, turn after turn. Times are Unix seconds."""

    thread_id: str
    objective: str
    status: ThreadGoalStatus
    token_budget: Int64 | None = None
    """Tokens that the goal may cost; null means no limit."""
    tokens_used: Int64
    time_used_seconds: Int64
    created_at: Int64
    updated_at: Int64


class ThreadAttachment(WireModel):
    """Something that was attached to a thread."""

    id: str
    attachment_type: str
    identity_key: str
    payload: Json
    created_at: Int64
    """Unix seconds."""
