"""turn/*: starting, steering and stopping a turn, and what it reports."""

from typing import Literal, TypeAlias

from protocol.items import ThreadItem, UserInput
from protocol.model import Json, JsonObject, WireModel, experimental
from protocol.policy import ApprovalsReviewer, AskForApproval, SandboxPolicy

TurnStatus: TypeAlias = Literal["completed", "interrupted", "failed", "inProgress"]

ReasoningSummary: TypeAlias = Literal["auto", "concise", "detailed", "none"]

McpMetaByServer: TypeAlias = dict[str, JsonObject]
"""Raw server name to the members that go into `_meta` of calls the model makes there."""


class TurnError(WireModel):
    """Why a turn or a model call failed."""

    message: str
    codex_error_info: Json = None
    """A camelCase word, or an object with one such key and its facts."""
    additional_details: str | None = None
    misalignment: JsonObject | None = None


class Turn(WireModel):
    """One run of the model loop. Times are Unix seconds."""

    id: str
    root_turn_id: str | None = None
    items: list[ThreadItem]
    items_view: Literal["notLoaded", "summary", "full"] = "full"
    """How much of the items is here; `summary` is the last agent message."""
    status: TurnStatus
    error: TurnError | None = None
    started_at: int | None = None
    completed_at: int | None = None
    duration_ms: int | None = None


class TurnStartParams(WireModel):
    """Give the model something to do.

    Settings become the thread's; `output_schema` and `mcp_meta_by_server` hold for this turn alone.
    """

    thread_id: str
    input: list[UserInput]
    client_user_message_id: str | None = None
    """Comes back as `clientId` of the user message."""
    model: str | None = None
    cwd: str | None = None
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    sandbox_policy: SandboxPolicy | None = None
    effort: str | None = None
    summary: ReasoningSummary | None = None
    service_tier: str | None = None
    personality: Literal["none", "friendly", "pragmatic"] | None = None
    output_schema: Json = None
    """JSON Schema that the last agent message must satisfy."""
    root_turn_id: str | None = None
    parent_turn_id: str | None = None
    turn_trigger: str | None = None
    disabled_plugin_ids: list[str] | None = None
    mcp_meta_by_server: McpMetaByServer | None = experimental()
    """Extra `_meta` for MCP calls the model makes in this turn; an extension of ours."""
    collaboration_mode: JsonObject | None = experimental()
    responsesapi_client_metadata: dict[str, str] | None = experimental()
    """Goes to the model's API as `client_metadata`, and nowhere else."""


class TurnStartResponse(WireModel):
    """The turn that took the input."""

    turn: Turn


class TurnSteerParams(WireModel):
    """Give the running turn more to think about."""

    thread_id: str
    expected_turn_id: str
    """The turn that the caller believes is running."""
    input: list[UserInput]
    client_user_message_id: str | None = None
    mcp_meta_by_server: McpMetaByServer | None = experimental()
    """Replaces the turn's entries, server by server; an extension of ours."""


class TurnSteerResponse(WireModel):
    """The turn that took the input."""

    turn_id: str


class TurnInterruptParams(WireModel):
    """Stop a turn; an empty `turn_id` without a running turn stops MCP start-up."""

    thread_id: str
    turn_id: str


class TurnInterruptResponse(WireModel):
    """Nothing: the end arrives as `turn/completed`."""


class TurnStartedNotification(WireModel):
    """The turn runs."""

    thread_id: str
    turn: Turn


class TurnCompletedNotification(WireModel):
    """The turn is over, and its end is in the log."""

    thread_id: str
    turn: Turn


class ErrorNotification(WireModel):
    """A model call failed; with `will_retry` the turn goes on."""

    error: TurnError
    will_retry: bool
    thread_id: str
    turn_id: str


class TokenUsageBreakdown(WireModel):
    """Tokens as the model's API counts them."""

    total_tokens: int
    input_tokens: int
    cached_input_tokens: int
    cache_write_input_tokens: int = 0
    output_tokens: int
    reasoning_output_tokens: int


class ThreadTokenUsage(WireModel):
    """The thread's account: all calls, and the last one."""

    total: TokenUsageBreakdown
    last: TokenUsageBreakdown
    model_context_window: int | None = None


class ThreadTokenUsageUpdatedNotification(WireModel):
    """A model call was paid for."""

    thread_id: str
    turn_id: str
    token_usage: ThreadTokenUsage
