"""More permissions for a turn or a thread: the user is asked, and what is granted is kept.

Source: docs/tools.md, "Permissions".
"""

from dataclasses import dataclass, field

from app_server.permissions.grants import Grant, granted
from app_server.turns.approval.asking import Decision, HookedTool, Question, ThreadQuestions
from app_server.turns.approval.reviewer import PlannedAction, machine_of
from protocol.log.rollout import LOCAL
from protocol.model import WireModel
from protocol.turns.approvals import (
    PermissionGrantScope,
    PermissionsRequestApprovalParams,
    PermissionsRequestApprovalResponse,
)
from protocol.turns.auto_review import RequestPermissionsGuardianApprovalReviewAction
from protocol.turns.policy import GranularAskForApproval, RequestPermissionProfile

METHOD = "item/permissions/requestApproval"


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionRequest:
    """Permissions that the model wants."""

    turn_id: str
    item_id: str
    environment_id: str
    cwd: str
    reason: str | None
    profile: RequestPermissionProfile
    """With absolute paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PermissionQuestion(Question):
    """A question about more permissions."""

    def read(self, answer: WireModel, client: str | None) -> Decision:
        """Return the decision: what is granted is in the answer, and may be nothing."""
        return Decision(is_allowed=True, by="user", word="accept", answer=answer, client=client)


@dataclass(slots=True)
class PermissionApprovals:
    """The permissions of one thread beyond its sandbox."""

    questions: ThreadQuestions
    _of_session: dict[str, Grant] = field(default_factory=dict, init=False)
    """By environment, as are those of the turn."""
    _of_turn: dict[str, Grant] = field(default_factory=dict, init=False)
    _turn_id: str = field(default="", init=False)

    def granted(self, turn_id: str, environment_id: str = LOCAL) -> Grant:
        """Return what was granted in an environment: paths are of that machine."""
        grant = self._of_session.get(environment_id, Grant())
        if turn_id == self._turn_id:
            grant = grant.joined(self._of_turn.get(environment_id, Grant()))
        return grant

    async def ask(self, request: PermissionRequest) -> tuple[Grant, PermissionGrantScope]:
        """Ask the user or the reviewer, keep what is granted, and return it and its scope.

        Nothing is granted where policy forbids the question, the user refuses, or nobody answers
        in time; nor anything that was not asked for. The reviewer grants all for the turn, and so
        does a hook.
        """
        if not self._may_ask():
            return Grant(), "turn"
        with self.questions.open(self._question(request)) as open_question:
            decision = await open_question.decide()
        if not decision.is_allowed:
            return Grant(), "turn"
        given = granted(request.profile.file_system, request.profile.network)
        scope: PermissionGrantScope = "turn"
        if isinstance(answer := decision.answer, PermissionsRequestApprovalResponse):
            permissions = answer.permissions
            given = granted(permissions.file_system, permissions.network).within(given)
            scope = answer.scope
        self._keep(request, given, scope)
        return given, scope

    def _keep(self, request: PermissionRequest, given: Grant, scope: PermissionGrantScope) -> None:
        if scope == "turn" and request.turn_id != self._turn_id:
            self._turn_id, self._of_turn = request.turn_id, {}
        grants = self._of_session if scope == "session" else self._of_turn
        before = grants.get(request.environment_id, Grant())
        grants[request.environment_id] = before.joined(given)

    def _may_ask(self) -> bool:
        policy = self.questions.log.state.in_force.approval_policy
        if isinstance(policy, GranularAskForApproval):
            return policy.granular.request_permissions
        return policy != "never"

    def _question(self, request: PermissionRequest) -> Question:
        profile = request.profile
        params = PermissionsRequestApprovalParams(
            thread_id=self.questions.log.id,
            turn_id=request.turn_id,
            item_id=request.item_id,
            environment_id=request.environment_id,
            started_at_ms=self.questions.clock.now_ms(),
            cwd=request.cwd,
            reason=request.reason,
            permissions=profile,
        )
        shown = profile.model_dump(mode="json", by_alias=True, exclude_none=True)
        planned = PlannedAction(
            turn_id=request.turn_id,
            target_item_id=request.item_id,
            action=RequestPermissionsGuardianApprovalReviewAction(
                reason=request.reason, permissions=profile
            ),
            evidence={
                "kind": "permissions",
                **machine_of(request.environment_id),
                "cwd": request.cwd,
                "permissions": shown,
                "justification_of_the_agent": request.reason,
            },
        )
        return PermissionQuestion(
            action="permissions",
            turn_id=request.turn_id,
            item_id=request.item_id,
            subject=profile.model_dump_json(by_alias=True, exclude_none=True),
            method=METHOD,
            params=params,
            planned=planned,
            hooked=HookedTool(
                name="request_permissions", input={"permissions": shown, "reason": request.reason}
            ),
        )
