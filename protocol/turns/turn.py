"""turn/*, review/start, error, model/*: one run of the model loop and what is told about it.

Settings that are null or left out stay as they are, unless a member says otherwise.
"""

from typing import Annotated, Literal, TypeAlias

from pydantic import Field
from typing_extensions import TypeAliasType

from protocol.model import (
    Int64,
    Json,
    JsonObject,
    OpenEnum,
    UInt16,
    Variant,
    WireModel,
    experimental,
)
from protocol.thread_ids import ThreadIdParam
from protocol.turns.items import ThreadItem, UserInput
from protocol.turns.policy import ApprovalsReviewer, AskForApproval, SandboxPolicy
from protocol.turns.response_items import FunctionCallOutputBody
from protocol.values import (
    AbsoluteAppPath,
    AbsolutePathBuf,
    CollaborationMode,
    CyberAccessProgram,
    LegacyAppPathString,
    MultiAgentMode,
    Personality,
    ReasoningEffort,
    ReasoningSummary,
)

ReviewDelivery = TypeAliasType("ReviewDelivery", Literal["inline"])
"""Where a review runs: on the thread that asked for it."""


class BaseBranchReviewTarget(Variant):
    """What the current branch changed since it left another one."""

    type: Literal["baseBranch"] = "baseBranch"
    branch: str


class CommitReviewTarget(Variant):
    """What one commit changed."""

    type: Literal["commit"] = "commit"
    sha: str
    title: str | None = None
    """What to call the commit on screen, such as its subject."""


class CustomReviewTarget(Variant):
    """Whatever the user's own words say."""

    type: Literal["custom"] = "custom"
    instructions: str


class UncommittedChangesReviewTarget(Variant):
    """What is not committed: staged, unstaged and untracked files."""

    type: Literal["uncommittedChanges"] = "uncommittedChanges"


ReviewTarget = TypeAliasType(
    "ReviewTarget",
    Annotated[
        UncommittedChangesReviewTarget
        | BaseBranchReviewTarget
        | CommitReviewTarget
        | CustomReviewTarget,
        Field(discriminator="type"),
    ],
)
"""What a review looks at."""


class ReviewStartParams(WireModel):
    """Have the model review code, in a turn of its own."""

    thread_id: ThreadIdParam
    target: ReviewTarget
    delivery: ReviewDelivery | None = None
    """Null means `inline`."""


NonSteerableTurnKind = TypeAliasType("NonSteerableTurnKind", OpenEnum[Literal["review", "compact"]])
"""A kind of turn that takes no further input."""


class NotSteerable(Variant):
    """Which kind of turn is in the way."""

    turn_kind: NonSteerableTurnKind


class ActiveTurnNotSteerableCodexErrorInfo(Variant, extra="forbid"):
    """The running turn takes no further input."""

    active_turn_not_steerable: NotSteerable


class HttpFailure(Variant):
    """The HTTP answer behind a failure."""

    http_status_code: UInt16 | None = None
    """Null when there was no HTTP answer."""


class HttpConnectionFailedCodexErrorInfo(Variant, extra="forbid"):
    """The model's API could not be reached."""

    http_connection_failed: HttpFailure


class ResponseStreamConnectionFailedCodexErrorInfo(Variant, extra="forbid"):
    """The stream of the model's answer could not be opened."""

    response_stream_connection_failed: HttpFailure


class ResponseStreamDisconnectedCodexErrorInfo(Variant, extra="forbid"):
    """The stream of the model's answer broke off before its end."""

    response_stream_disconnected: HttpFailure


class ResponseTooManyFailedAttemptsCodexErrorInfo(Variant, extra="forbid"):
    """The model call failed as often as it may be tried."""

    response_too_many_failed_attempts: HttpFailure


CodexErrorInfo = TypeAliasType(
    "CodexErrorInfo",
    Literal[
        "contextWindowExceeded",
        "sessionBudgetExceeded",
        "usageLimitExceeded",
        "rateLimitExceeded",
        "flexUnavailable",
        "serverOverloaded",
        "modelNotFound",
        "policyCapacityUnavailable",
        "cyberPolicy",
        "misalignmentPolicyViolation",
        "tooManyDenials",
        "internalServerError",
        "unauthorized",
        "badRequest",
        "threadRollbackFailed",
        "sandboxError",
        "other",
        "inferenceHookDenied",
    ]
    | HttpConnectionFailedCodexErrorInfo
    | ResponseStreamConnectionFailedCodexErrorInfo
    | ResponseStreamDisconnectedCodexErrorInfo
    | ResponseTooManyFailedAttemptsCodexErrorInfo
    | ActiveTurnNotSteerableCodexErrorInfo
    | str
    | JsonObject,
)
"""The kind of a failure, for programs to decide by; newer servers may add kinds."""


class MisalignmentSteer(WireModel):
    """How the conversation can go on after a block."""

    message: str
    """Send it as the input of the next turn if the user wants to go on."""


class MisalignmentErrorDetails(WireModel):
    """Why the model was stopped as misaligned, and what the user can do about it."""

    error_type: str | None = None
    """An open set of words."""
    detailed_explanation: str | None = None
    """For the user, in their language; without it do not offer to go on."""
    steer: MisalignmentSteer | None = None
    review_target: str | None = None
    """Opaque; names the block."""


class TurnError(WireModel):
    """Why a turn or a model call failed."""

    message: str
    """For the user to read."""
    codex_error_info: CodexErrorInfo | None = None
    """A camelCase word, or an object with one such key and its facts."""
    additional_details: str | None = None
    misalignment: MisalignmentErrorDetails | None = None
    """Set when the model was stopped as misaligned."""


TurnItemsView = TypeAliasType("TurnItemsView", Literal["notLoaded", "summary", "full"])
"""How much of a turn's items is there: none, what a summary shows, or all."""


TurnStatus = TypeAliasType(
    "TurnStatus", OpenEnum[Literal["completed", "interrupted", "failed", "inProgress"]]
)
"""How a turn ended, or that it runs."""


class Turn(WireModel):
    """One run of the model loop. Times are Unix seconds."""

    id: str
    root_turn_id: str | None = None
    """The first turn of the chain of work that led here; its own id if it began one."""
    items: list[ThreadItem]
    items_view: TurnItemsView = "full"
    """How much of the items is here; `summary` is the last agent message."""
    status: TurnStatus
    error: TurnError | None = None
    """Set for failed turns, and for interrupted ones that have a reason."""
    started_at: Int64 | None = None
    completed_at: Int64 | None = None
    """Null while the turn runs."""
    duration_ms: Int64 | None = None


class ReviewStartResponse(WireModel):
    """The turn in which the review runs."""

    turn: Turn
    review_thread_id: str
    """The thread that was named in the request."""


class TurnInterruptParams(WireModel):
    """Stop a turn; an empty `turnId` without a running turn stops MCP start-up."""

    thread_id: ThreadIdParam
    turn_id: str


class TurnInterruptResponse(WireModel):
    """Nothing: the end arrives as `turn/completed`."""


class TurnEnvironmentParams(WireModel):
    """An environment for tools to run in, and where in it."""

    environment_id: str
    cwd: AbsoluteAppPath
    runtime_workspace_roots: list[LegacyAppPathString] | None = None
    """Paths inside the environment; null means `cwd` alone."""


class TurnSettingsUpdateParams(WireModel, extra="forbid"):
    """Change settings of the running turn, and of that turn alone."""

    thread_id: ThreadIdParam
    turn_id: str
    approvals_reviewer: ApprovalsReviewer | None = None
    """Questions that are already open stay with their reviewer."""
    environments: list[TurnEnvironmentParams] | None = None
    """For the steps that follow; `[]` leaves the turn without any."""
    model: str | None = None
    effort: ReasoningEffort | None = None
    summary: ReasoningSummary | None = None
    service_tier: str | None = None
    """Null clears the tier; leave it out to keep it."""


TurnSettingsUpdateStatus = TypeAliasType(
    "TurnSettingsUpdateStatus", OpenEnum[Literal["applied", "targetUnavailable"]]
)
"""Whether the turn's next steps use the settings, or it was no longer there."""


class TurnSettingsUpdateResponse(WireModel):
    """What became of the change."""

    status: TurnSettingsUpdateStatus


AdditionalContextKind = TypeAliasType("AdditionalContextKind", Literal["untrusted", "application"])
"""How far a context text is trusted: material to judge, or the word of the application."""


class AdditionalContextEntry(WireModel):
    """A text that the client adds to what the model knows."""

    value: str
    kind: AdditionalContextKind
    name: str | None = None
    """Label for an untrusted text."""


class TurnToolOutput(WireModel):
    """Output of a tool that comes with the input of a turn."""

    name: str
    namespace: str | None = None
    output: FunctionCallOutputBody
    retain: bool = False
    """Keep it in the thread's model-visible history."""


McpMetaByServer: TypeAlias = dict[str, JsonObject]
"""Raw server name to the members that go into `_meta` of calls the model makes there."""


class TurnStartParams(WireModel):
    """Give the model something to do; settings become the thread's."""

    thread_id: ThreadIdParam
    disabled_plugin_ids: list[str] | None = None
    """Replaces the thread's list; `[]` clears it."""
    client_user_message_id: str | None = None
    """Comes back as `clientId` of the user message."""
    input: list[UserInput]
    turn_trigger: str | None = None
    """What made the client start the turn; ignored when the input joins a running turn."""
    parent_turn_id: str | None = None
    """The turn that caused this one, perhaps in another thread; null for work of the user."""
    root_turn_id: str | None = None
    """The parent's `rootTurnId`; null makes the new turn its own root."""
    tool_output: TurnToolOutput | None = None
    responsesapi_client_metadata: dict[str, str] | None = experimental()
    """Goes to the model's API as `client_metadata`, and nowhere else."""
    responsesapi_client_metadata_patch: dict[str, str] | None = experimental()
    """Merged into those entries, after `responsesapiClientMetadata`."""
    additional_context: dict[str, AdditionalContextEntry] | None = experimental()
    """By a name of the source, which is opaque to the server."""
    environments: list[TurnEnvironmentParams] | None = experimental()
    """The first one is the current one; `[]` leaves the turn without any."""
    cwd: str | None = None
    runtime_workspace_roots: list[AbsolutePathBuf] | None = experimental()
    """Replaces the thread's roots."""
    approval_policy: AskForApproval | None = None
    approvals_reviewer: ApprovalsReviewer | None = None
    sandbox_policy: SandboxPolicy | None = None
    permissions: str | None = experimental()
    """Id of a named permission profile; not together with `sandboxPolicy`."""
    model: str | None = None
    service_tier: str | None = None
    service_tier_for_turn: str | None = None
    """For a new turn alone; `default` means the ordinary speed."""
    effort: ReasoningEffort | None = None
    summary: ReasoningSummary | None = None
    personality: Personality | None = None
    output_schema: Json = None
    """JSON Schema that the last agent message of this turn must satisfy."""
    collaboration_mode: CollaborationMode | None = experimental()
    """Wins over `model` and `effort`."""
    multi_agent_mode: MultiAgentMode | None = experimental()
    """Outdated and ignored; set `effort` instead."""
    cyber_access_program: CyberAccessProgram | None = experimental()
    """For this turn; grants nothing that the account does not have."""
    mcp_meta_by_server: McpMetaByServer | None = experimental(extension=True)
    """Extra `_meta` for MCP calls that the model makes in this turn."""


class TurnStartResponse(WireModel):
    """The turn that took the input."""

    turn: Turn


class TurnSteerParams(WireModel):
    """Give the running turn more to think about."""

    thread_id: ThreadIdParam
    client_user_message_id: str | None = None
    input: list[UserInput]
    responsesapi_client_metadata: dict[str, str] | None = experimental()
    """Replaces the client's entries in the turn metadata of model calls; `{}` clears them."""
    responsesapi_client_metadata_patch: dict[str, str] | None = experimental()
    """Merged into those entries, after `responsesapiClientMetadata`."""
    additional_context: dict[str, AdditionalContextEntry] | None = experimental()
    """By a name of the source, which is opaque to the server."""
    expected_turn_id: str
    """The turn that the caller believes is running."""
    mcp_meta_by_server: McpMetaByServer | None = experimental(extension=True)
    """Replaces the turn's entries, server by server."""


class TurnSteerResponse(WireModel):
    """The turn that took the input."""

    turn_id: str


class ErrorNotification(WireModel):
    """A model call failed; with `willRetry` the turn goes on."""

    error: TurnError
    will_retry: bool
    thread_id: str
    turn_id: str


ModelRerouteReason = TypeAliasType("ModelRerouteReason", OpenEnum[Literal["highRiskCyberActivity"]])
"""Why another model took over."""


class ModelReroutedNotification(WireModel):
    """Another model answers than the one that was asked for."""

    thread_id: str
    turn_id: str
    from_model: str
    to_model: str
    reason: ModelRerouteReason


class ModelSafetyBufferingUpdatedNotification(WireModel):
    """Whether the model's output is held back for safety checks has changed."""

    thread_id: str
    turn_id: str
    model: str
    use_cases: list[str]
    reasons: list[str]
    show_buffering_ui: bool
    """The user should be told to wait."""
    faster_model: str | None = None
    """A model to offer instead; null when there is none."""


ModelVerification = TypeAliasType("ModelVerification", OpenEnum[Literal["trustedAccessForCyber"]])
"""A way in which an account can be verified."""


class ModelVerificationNotification(WireModel):
    """The model's API advises to have the account verified."""

    thread_id: str
    turn_id: str
    verifications: list[ModelVerification]


class TokenUsageBreakdown(WireModel):
    """Tokens as the model's API counts them."""

    total_tokens: Int64
    input_tokens: Int64
    cached_input_tokens: Int64
    """Part of `inputTokens`."""
    cache_write_input_tokens: Int64 = 0
    output_tokens: Int64
    reasoning_output_tokens: Int64
    """Part of `outputTokens`."""


class ThreadTokenUsage(WireModel):
    """The thread's account: all calls, and the last one."""

    total: TokenUsageBreakdown
    last: TokenUsageBreakdown
    model_context_window: Int64 | None = None
    """Tokens that the model can take; null when that is not known."""


class ThreadTokenUsageUpdatedNotification(WireModel):
    """A model call was paid for."""

    thread_id: str
    turn_id: str
    token_usage: ThreadTokenUsage


class TurnCompletedNotification(WireModel):
    """The turn is over, and its end is in the log."""

    thread_id: str
    turn: Turn


class TurnDiffUpdatedNotification(WireModel):
    """The turn changed files again."""

    thread_id: str
    turn_id: str
    diff: str
    """Unified diff of all that the turn has changed so far."""


class TurnModerationMetadataNotification(WireModel):
    """The model's API sent moderation data for the turn."""

    thread_id: str
    turn_id: str
    metadata: Json
    """As the API sent it."""


TurnPlanStepStatus = TypeAliasType(
    "TurnPlanStepStatus", OpenEnum[Literal["pending", "inProgress", "completed"]]
)
"""How far a step of the plan is."""


class TurnPlanStep(WireModel):
    """One step of the model's plan."""

    step: str
    status: TurnPlanStepStatus


class TurnPlanUpdatedNotification(WireModel):
    """The model has a new plan, in place of the one before."""

    thread_id: str
    turn_id: str
    explanation: str | None = None
    """Why the plan changed, if the model said so."""
    plan: list[TurnPlanStep]


class TurnStartedNotification(WireModel):
    """The turn runs."""

    thread_id: str
    turn: Turn
