"""Whether files may be changed for the model: policy first, then the user or the reviewer.

Source: docs/tools.md, "Approvals and rules".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from app_server.permissions.verdict import NeedsApproval, Refuse, Run, Verdict, may_leave_sandbox
from app_server.turns.approval.asking import Decision, HookedTool, Question, ThreadQuestions
from app_server.turns.approval.reviewer import (
    MAX_ARGUMENTS_BYTES,
    PlannedAction,
    bounded,
    machine_of,
)
from protocol.log.rollout import LOCAL
from protocol.model import WireModel
from protocol.turns.approvals import (
    FileChangeRequestApprovalParams,
    FileChangeRequestApprovalResponse,
)
from protocol.turns.auto_review import ApplyPatchGuardianApprovalReviewAction

METHOD = "item/fileChange/requestApproval"
REJECTED = "patch rejected by user"
BY_SETTINGS = "rejected by user approval settings"
OUTSIDE = f"patch rejected: writing outside of the project; {BY_SETTINGS}"
READ_ONLY = f"patch rejected: writing is blocked by read-only sandbox; {BY_SETTINGS}"

MAX_REMEMBERED = 4_096
"""Files of one thread that the user allowed to change for the session; the oldest are forgotten."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRequest:
    """Changes of files that may need somebody's word."""

    turn_id: str
    item_id: str
    environment_id: str = LOCAL
    """Whose files they are."""
    cwd: str
    paths: Sequence[str]
    """Absolute, of all files that change, also where they are moved from and to."""
    is_inside: bool
    """Whether all of them are where the thread may write."""
    may_write: bool = True
    """Whether there is any place where the thread may write."""
    reason: str | None = None
    """Why it is asked, if the user cannot see it from the paths."""
    patch: str
    """The changes, for the reviewer."""

    @property
    def files(self) -> list[tuple[str, str]]:
        """The files that change, each with its environment."""
        return [(self.environment_id, path) for path in self.paths]

    @property
    def question_reason(self) -> str | None:
        """Reason shown to the user besides the paths, with the other machine if there is one."""
        if self.environment_id == LOCAL:
            return self.reason
        place = f"in environment `{self.environment_id}`"
        return place if self.reason is None else f"{place}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileQuestion(Question):
    """A question about changes of files."""

    def read(self, answer: WireModel, client: str | None) -> Decision:
        """Return the decision."""
        assert isinstance(answer, FileChangeRequestApprovalResponse)
        is_allowed = answer.decision in ("accept", "acceptForSession")
        return Decision(
            is_allowed=is_allowed,
            by="user",
            word=answer.decision,
            text="" if is_allowed else REJECTED,
            ends_turn=answer.decision == "cancel",
            answer=answer,
            client=client,
        )


@dataclass(slots=True)
class FileApprovals:
    """The approvals of one thread's changes of files; those for the session are remembered here."""

    questions: ThreadQuestions
    _remembered: dict[tuple[str, str], None] = field(default_factory=dict, init=False)

    def check(self, request: FileRequest) -> Verdict:
        """Return whether changes are made, have to be asked about, or are refused.

        Nothing of a patch runs in a sandbox: what a verdict says of one has no meaning here.
        """
        policy = self.questions.log.state.in_force.approval_policy
        if all(file in self._remembered for file in request.files):
            return Run()
        if policy == "untrusted":
            return NeedsApproval()
        if request.is_inside:
            return Run()
        if may_leave_sandbox(policy):
            return NeedsApproval()
        if request.reason is not None:
            return Refuse(f"patch rejected: {request.reason}; {BY_SETTINGS}")
        return Refuse(OUTSIDE if request.may_write else READ_ONLY)

    def keep(self, request: FileRequest, decision: Decision) -> None:
        """Keep an approval for the session."""
        answer = decision.answer
        if not isinstance(answer, FileChangeRequestApprovalResponse):
            return
        if answer.decision == "acceptForSession":
            self._remembered.update(dict.fromkeys(request.files))
            while len(self._remembered) > MAX_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]

    def question(self, request: FileRequest) -> Question:
        """Return the question; the item must have been announced."""
        params = FileChangeRequestApprovalParams(
            thread_id=self.questions.log.id,
            turn_id=request.turn_id,
            item_id=request.item_id,
            started_at_ms=self.questions.clock.now_ms(),
            reason=request.question_reason,
        )
        planned = PlannedAction(
            turn_id=request.turn_id,
            target_item_id=request.item_id,
            action=ApplyPatchGuardianApprovalReviewAction(
                cwd=request.cwd, files=list(request.paths)
            ),
            evidence={
                "kind": "file_change",
                **machine_of(request.environment_id),
                "cwd": request.cwd,
                "files": bounded(list(request.paths), MAX_ARGUMENTS_BYTES),
                "where_it_may_write": request.is_inside,
                "why_asked": request.reason,
                "patch": bounded(request.patch, MAX_ARGUMENTS_BYTES),
            },
        )
        return FileQuestion(
            action="fileChange",
            turn_id=request.turn_id,
            item_id=request.item_id,
            subject=", ".join(request.paths),
            method=METHOD,
            params=params,
            planned=planned,
            hooked=HookedTool(name="apply_patch", input={"command": request.patch}),
        )
