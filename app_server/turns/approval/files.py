"""Whether files may be changed for the model: policy first, then the user or the reviewer.

Source: docs/tools.md, "Approvals and rules".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from app_server.permissions.decision import Ask, Decision, Refuse, Run, may_leave_sandbox
from app_server.turns.approval.asking import ApprovalCancelled, Asker, Denied, OnDenied, Question
from app_server.turns.review.evidence import MAX_ARGUMENTS_BYTES, bounded, machine_of
from protocol.log.rollout import LOCAL
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
    """What changes, for the reviewer."""

    @property
    def files(self) -> list[tuple[str, str]]:
        """The files that change, each with its environment."""
        return [(self.environment_id, path) for path in self.paths]

    @property
    def question_reason(self) -> str | None:
        """What the user is shown besides the paths: why, and on which other machine."""
        if self.environment_id == LOCAL:
            return self.reason
        place = f"in environment `{self.environment_id}`"
        return place if self.reason is None else f"{place}: {self.reason}"


@dataclass(slots=True)
class FileGate:
    """The approvals of one thread's changes; what was allowed for the session is kept here."""

    asker: Asker
    _remembered: dict[tuple[str, str], None] = field(default_factory=dict, init=False)

    def decide(self, request: FileRequest) -> Decision:
        """Say whether changes are made, have to be asked about with `ask`, or are refused.

        A decision to run that is not `sandboxed` is for files outside of where the thread may
        write, which the user has allowed.
        """
        policy = self.asker.thread.state.in_force.approval_policy
        if all(file in self._remembered for file in request.files):
            return Run(sandboxed=request.is_inside)
        if policy == "untrusted":
            return Ask(sandboxed=request.is_inside)
        if request.is_inside:
            return Run()
        if may_leave_sandbox(policy):
            return Ask(sandboxed=False)
        if request.reason is not None:
            return Refuse(f"patch rejected: {request.reason}; {BY_SETTINGS}")
        return Refuse(OUTSIDE if request.may_write else READ_ONLY)

    async def ask(self, request: FileRequest, on_denied: OnDenied) -> None:
        """Ask the user or the reviewer; returns when the files may be changed.

        The item must have been announced; see `CommandGate.ask`.

        Raises:
            ApprovalCancelled: the user cancelled the turn too, which has to be interrupted.
            Denied: they must not be changed; the text is for the model.
        """
        kind = FileChangeRequestApprovalResponse
        answer = await self.asker.allow(self._question(request), kind, _check, on_denied)
        if answer is not None and answer.decision == "acceptForSession":
            self._remembered.update(dict.fromkeys(request.files))
            while len(self._remembered) > MAX_REMEMBERED:
                del self._remembered[next(iter(self._remembered))]

    def _question(self, request: FileRequest) -> Question:
        params = FileChangeRequestApprovalParams(
            thread_id=self.asker.thread.id,
            turn_id=request.turn_id,
            item_id=request.item_id,
            started_at_ms=self.asker.clock.now_ms(),
            reason=request.question_reason,
        )
        return Question(
            action="fileChange",
            turn_id=request.turn_id,
            item_id=request.item_id,
            subject=", ".join(request.paths),
            method=METHOD,
            params=params,
            reviewed=ApplyPatchGuardianApprovalReviewAction(
                cwd=request.cwd, files=list(request.paths)
            ),
            tool_name="apply_patch",
            tool_input={"command": request.patch},
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


def _check(answer: FileChangeRequestApprovalResponse) -> None:
    match answer.decision:
        case "cancel":
            raise ApprovalCancelled(REJECTED)
        case "decline":
            raise Denied(REJECTED)
