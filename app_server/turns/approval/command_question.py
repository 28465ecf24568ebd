"""How the user or the reviewer is asked whether a command may run. No I/O.

Source: docs/tools.md, "Approvals and rules".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app_server.permissions.confinement.confinement import Confinement
from app_server.permissions.decision import Ask, CommandFacts
from app_server.turns.approval.asking import Asker, Question
from app_server.turns.review.evidence import (
    MAX_ARGUMENTS_BYTES,
    MAX_DESCRIPTION_BYTES,
    bounded,
    machine_of,
)
from protocol.log.rollout import LOCAL
from protocol.turns.approvals import (
    AcceptWithExecpolicyAmendmentDecision,
    CommandExecutionApprovalDecision,
    CommandExecutionRequestApprovalParams,
    ExecpolicyAmendmentChoice,
)
from protocol.turns.auto_review import CommandGuardianApprovalReviewAction
from protocol.turns.items import CommandAction

METHOD = "item/commandExecution/requestApproval"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRequest:
    """A command that may need somebody's word."""

    turn_id: str
    item_id: str
    facts: CommandFacts
    command: str
    """The whole line, with the shell that runs it, as clients are shown it."""
    cwd: str
    actions: Sequence[CommandAction]
    confinement: Confinement
    """What confines it, if it runs in the sandbox."""
    environment_id: str = LOCAL
    """Where it runs."""


def command_question(
    asker: Asker, request: CommandRequest, ask: Ask, approval_id: str | None = None
) -> Question:
    """Put the question; `approval_id` tells a second one about the same item from the first."""
    amendment = None if ask.amendment is None else list(ask.amendment)
    params = CommandExecutionRequestApprovalParams(
        thread_id=asker.thread.id,
        turn_id=request.turn_id,
        item_id=request.item_id,
        started_at_ms=asker.clock.now_ms(),
        approval_id=approval_id,
        environment_id=request.environment_id,
        reason=ask.reason,
        command=request.command,
        cwd=request.cwd,
        command_actions=list(request.actions),
        proposed_execpolicy_amendment=amendment,
        available_decisions=_offered(amendment),
    )
    return Question(
        action="command",
        turn_id=request.turn_id,
        item_id=request.item_id,
        subject=request.command,
        method=METHOD,
        params=params,
        reviewed=CommandGuardianApprovalReviewAction(
            source="unifiedExec", command=request.command, cwd=request.cwd
        ),
        tool_name="Bash",
        tool_input={
            "command": request.facts.script.text,
            "description": request.facts.justification,
        },
        evidence={
            "kind": "command",
            **machine_of(request.environment_id),
            "command": bounded(request.command, MAX_ARGUMENTS_BYTES),
            "cwd": request.cwd,
            "runs_in_sandbox": ask.sandboxed and request.confinement.is_confined,
            "why_asked": ask.reason,
            "justification_of_the_agent": bounded(
                request.facts.justification, MAX_DESCRIPTION_BYTES
            ),
        },
    )


def _offered(amendment: list[str] | None) -> list[CommandExecutionApprovalDecision]:
    if amendment is None:
        return ["accept", "cancel"]
    choice = ExecpolicyAmendmentChoice(execpolicy_amendment=amendment)
    learn = AcceptWithExecpolicyAmendmentDecision(accept_with_execpolicy_amendment=choice)
    return ["accept", learn, "cancel"]
