"""The automatic reviewer: an agent with one question and no tools decides instead of the user.

A review is a model call of its own, made up to three times. It fails closed: without a valid
assessment nothing is allowed.
Source: docs/mcp.md, "Reviewer".
"""

import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, TypeAlias

import anyio

from app_server.models.interface import ItemDone, Model, ModelFailure, ModelRequest
from app_server.models.provider import Provider
from app_server.runtime.clock import Clock
from app_server.threads.log.live import LiveThread
from app_server.turns.clients import ThreadClients
from app_server.turns.recorder import TurnRecorder
from app_server.turns.response.reader import texts_of
from app_server.turns.review.assessment import (
    MAX_ANSWER_BYTES,
    Assessment,
    NoAssessment,
    UnreadableAssessment,
    for_the_public,
    parse_assessment,
    review_body,
)
from app_server.turns.review.evidence import excerpt
from app_server.turns.slot import TurnSlot
from protocol.log.rollout import Settings
from protocol.model import JsonObject
from protocol.server.lifecycle import GuardianWarningNotification
from protocol.turns.auto_review import (
    GuardianApprovalReview,
    GuardianApprovalReviewAction,
    ItemGuardianApprovalReviewCompletedNotification,
    ItemGuardianApprovalReviewStartedNotification,
)
from protocol.turns.policy import ApprovalsReviewer

MAX_REVIEWS = 100
"""Of one turn; what comes after them is denied without asking."""

MAX_DENIALS_IN_A_ROW = 3
MAX_RECENT_DENIALS = 10
RECENT_REVIEWS = 50


@dataclass(slots=True)
class TurnReviews:
    """The reviews of one turn."""

    turn_id: str
    in_a_row: int = 0
    """Denials since the last review that ended otherwise."""
    _begun: int = 0
    _stopped: bool = False
    _recent: deque[bool] = field(default_factory=partial(deque, maxlen=RECENT_REVIEWS))

    @property
    def recent_denials(self) -> int:
        """Denials among the last `RECENT_REVIEWS`."""
        return sum(self._recent)

    def begin(self) -> bool:
        """Count one more; False when the turn has had its share."""
        self._begun += 1
        return self._begun <= MAX_REVIEWS

    def end(self, *, denied: bool) -> bool:
        """Take a result; True, once, when the turn must not go on.

        A review that came to no assessment is not a denial: it says nothing of the model's intent.
        """
        self.in_a_row = self.in_a_row + 1 if denied else 0
        self._recent.append(denied)
        too_many = (
            self.in_a_row >= MAX_DENIALS_IN_A_ROW or self.recent_denials >= MAX_RECENT_DENIALS
        )
        if self._stopped or not denied or not too_many:
            return False
        self._stopped = True
        return True


REVIEW_S = 90.0
"""For one review, with whatever its model call needs."""

TIMED_OUT = "Automatic approval review timed out while evaluating the requested approval."

ADVICE = (
    "Do not try to reach the same end in another way. Do something clearly safer, or stop and ask "
    "the user, who may approve it knowing the risk."
)
ADVICE_UNDECIDED = (
    "Nothing was done, as nobody could say whether it is safe; that does not make it unsafe. Do "
    "not go around the review: try once more at most, or ask the user."
)

End: TypeAlias = Literal["approved", "denied", "timedOut", "aborted"]


class ApprovalRefused(Exception):
    """The action must not be done; the text goes to the item and to the model."""


@dataclass(frozen=True, slots=True)
class PlannedAction:
    """Action that needs approval, as clients see it and as the reviewer sees it."""

    turn_id: str
    target_item_id: str | None
    """None if clients see no item."""
    action: GuardianApprovalReviewAction
    evidence: JsonObject
    private: str | None = None
    """A text of the evidence that must not come out again."""


def is_reviewed(registered: ApprovalsReviewer | None, settings: Settings) -> bool:
    """Whether the reviewer decides instead of the user; a server's registration comes first."""
    return (registered or settings.approvals_reviewer) != "user"


@dataclass(slots=True)
class Reviewer:
    """The reviews of one thread."""

    slot: TurnSlot
    log: LiveThread
    requests: "AssessmentRequests"
    clients: ThreadClients
    clock: Clock
    _turn: TurnReviews = field(default_factory=partial(TurnReviews, ""), init=False)

    async def review(self, planned: PlannedAction) -> None:
        """Have an action reviewed; returns when it may be done, this once.

        Takes at most `REVIEW_S`. Cancelling aborts the review, and clients are notified.

        Raises:
            ApprovalRefused: it was denied, or there was no assessment. When a turn was denied too
                much, it is interrupted as well.
        """
        if self._turn.turn_id != planned.turn_id:
            self._turn = TurnReviews(planned.turn_id)
        recorder = TurnRecorder(self.log, planned.turn_id, self.clients, self.clock)
        events = _ReviewEvents(recorder, planned)
        events.started()
        try:
            with anyio.fail_after(REVIEW_S):
                assessment = await self._assess(planned)
        except TimeoutError as exc:
            self._turn.end(denied=False)
            events.ended("timedOut", TIMED_OUT)
            raise ApprovalRefused(f"{TIMED_OUT}\n{ADVICE_UNDECIDED}") from exc
        except NoAssessment as exc:
            self._turn.end(denied=False)
            failure = f"Automatic approval review failed: {exc}"
            events.ended("denied", failure)
            raise ApprovalRefused(f"{failure}\n{ADVICE_UNDECIDED}") from exc
        except BaseException:
            events.ended("aborted")
            raise
        events.decided(assessment)
        denied = assessment.outcome == "deny"
        if self._turn.end(denied=denied):
            self._stop_denied_turn(events)
        if denied:
            reason = f"Reason: {assessment.rationale}"
            raise ApprovalRefused(
                f"This action was rejected due to unacceptable risk.\n{reason}\n{ADVICE}"
            )

    async def _assess(self, planned: PlannedAction) -> Assessment:
        if not self._turn.begin():
            raise NoAssessment(f"this turn has had {MAX_REVIEWS} reviews")
        evidence = {**excerpt(self.log.state.history), "action": planned.evidence}
        try:
            assessment = await self.requests.ask(evidence)
        except ModelFailure as exc:
            # A server that refuses a request may repeat it.
            may_be_shown = planned.private is None
            raise NoAssessment(exc.message if may_be_shown else "the model call failed") from exc
        return for_the_public(assessment, planned.private)

    def _stop_denied_turn(self, events: "_ReviewEvents") -> None:
        turn = self._turn
        message = (
            "Automatic approval review rejected too many approval requests for this turn "
            f"({turn.in_a_row} consecutive, {turn.recent_denials} in the last {RECENT_REVIEWS} "
            "reviews); interrupting the turn."
        )
        events.warn(message)
        self.slot.stop_denied_turn(turn.turn_id)


class _ReviewEvents:
    """Events of one review for a thread's clients."""

    def __init__(self, recorder: TurnRecorder, planned: PlannedAction) -> None:
        self._recorder = recorder
        self._planned = planned
        self._review_id = recorder.new_id()
        self._started_at_ms = recorder.now_ms()

    def started(self) -> None:
        self._recorder.emit(
            ItemGuardianApprovalReviewStartedNotification(
                **self._recorder.ids,
                started_at_ms=self._started_at_ms,
                review_id=self._review_id,
                target_item_id=self._planned.target_item_id,
                review=GuardianApprovalReview(status="inProgress"),
                action=self._planned.action,
            )
        )

    def decided(self, assessment: Assessment) -> None:
        status: End = "approved" if assessment.outcome == "allow" else "denied"
        self.warn(
            f"Automatic approval review {status} (risk: {assessment.risk_level}, "
            f"authorization: {assessment.user_authorization}): {assessment.rationale}"
        )
        self._completed(
            GuardianApprovalReview(
                status=status,
                risk_level=assessment.risk_level,
                user_authorization=assessment.user_authorization,
                rationale=assessment.rationale,
            )
        )

    def ended(self, status: End, reason: str | None = None) -> None:
        """Notify of an end without an assessment."""
        if reason is not None:
            self.warn(reason)
        self._completed(GuardianApprovalReview(status=status, rationale=reason))

    def warn(self, message: str) -> None:
        thread_id = self._recorder.log.id
        self._recorder.emit(GuardianWarningNotification(thread_id=thread_id, message=message))

    def _completed(self, review: GuardianApprovalReview) -> None:
        self._recorder.emit(
            ItemGuardianApprovalReviewCompletedNotification(
                **self._recorder.ids,
                started_at_ms=self._started_at_ms,
                completed_at_ms=self._recorder.now_ms(),
                review_id=self._review_id,
                target_item_id=self._planned.target_item_id,
                decision_source="agent",
                review=review,
                action=self._planned.action,
            )
        )


MAX_ATTEMPTS = 3
"""For one assessment, the first included; within each a provider is asked as for any request."""

RETRY_BASE_S = 0.2
"""Before the second attempt, and twice that before the third, unless the provider wants more."""


@dataclass(frozen=True, slots=True)
class AssessmentRequests:
    """Requests to the model that reviews for one thread: sent again where that may help."""

    thread: LiveThread
    model: Model
    providers: Mapping[str, Provider]

    async def ask(self, evidence: JsonObject) -> Assessment:
        """Get an assessment; the caller bounds the time.

        An attempt whose answer cannot be read is followed by one that says so, and one that failed
        in a way that may pass is made again.

        Raises:
            NoAssessment: the last attempt had none.
            ModelFailure: it failed, or an earlier one failed for good.
        """
        was_unreadable = False
        for attempt in range(1, MAX_ATTEMPTS):
            wait_s = RETRY_BASE_S * 2 ** (attempt - 1)
            try:
                return await self._once(evidence, was_unreadable)
            except UnreadableAssessment:
                was_unreadable = True
            except ModelFailure as failure:
                if failure.retry_after_s is None:
                    raise
                wait_s = max(wait_s, failure.retry_after_s)
            await anyio.sleep(wait_s * random.uniform(0.9, 1.1))
        return await self._once(evidence, was_unreadable)

    async def _once(self, evidence: JsonObject, was_unreadable: bool) -> Assessment:
        state = self.thread.state
        # The turn has asked it already.
        provider = self.providers[state.in_force.model_provider]
        answer = ""
        request = ModelRequest(
            provider, review_body(state, evidence, was_unreadable=was_unreadable)
        )
        async with self.model.stream(request) as batches:
            async for batch in batches:
                for event in batch:
                    if isinstance(event, ItemDone) and event.item["type"] == "message":
                        answer += "".join(texts_of(event.item.get("content")))
                if len(answer) > MAX_ANSWER_BYTES:
                    break
        return parse_assessment(answer)
