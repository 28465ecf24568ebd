"""A turn as clients see it: how far it is, what it cost, and why it failed."""

from typing import Literal

from typing_extensions import TypeAliasType

from protocol.model import Int64, JsonObject, OpenEnum, UInt16, Variant, WireModel
from protocol.turns.items import ThreadItem
from protocol.values import AbsoluteAppPath, LegacyAppPathString

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


class TurnEnvironmentParams(WireModel):
    """An environment for tools to run in, and where in it."""

    environment_id: str
    cwd: AbsoluteAppPath
    runtime_workspace_roots: list[LegacyAppPathString] | None = None
    """Paths inside the environment; null means `cwd` alone."""


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
