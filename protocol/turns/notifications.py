"""turn/*, model/*, error, thread/tokenUsage/updated: what clients are told of a turn."""

from typing import Literal

from typing_extensions import TypeAliasType

from protocol.model import Json, OpenEnum, WireModel
from protocol.turns.turn import ThreadTokenUsage, Turn, TurnError


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
