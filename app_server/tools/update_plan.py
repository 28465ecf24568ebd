"""The plan that a model keeps of its work, for clients to show.

Source: docs/tools.md, "Plans".
"""

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from app_server.turns.slot import RunningTurn
from app_server.turns.tools import (
    BadCall,
    RequestedCall,
    ToolArguments,
    TurnTool,
    function_declaration,
    object_of,
    text,
)
from protocol.model import Json
from protocol.turns.notifications import (
    TurnPlanStep,
    TurnPlanStepStatus,
    TurnPlanUpdatedNotification,
)

NAME = "update_plan"
UPDATED = "Plan updated"
NOT_IN_PLAN_MODE = "update_plan is not available in Plan mode: the plan is what you write"

MAX_STEPS = 100
MAX_TEXT_CHARS = 4_000
"""Of a step, and of the explanation."""

STATUSES: dict[str, TurnPlanStepStatus] = {
    "pending": "pending",
    "in_progress": "inProgress",
    "completed": "completed",
}

_DECLARATION = function_declaration(
    NAME,
    "Shows the user your plan, in place of the one before. Use it for work of several steps, "
    "and call it again when a step is begun or done. One step at a time is in progress.",
    {
        "explanation": text("Why the plan changes."),
        "plan": {
            "type": "array",
            "description": "All steps, in their order.",
            "items": object_of(
                {
                    "step": {"type": "string"},
                    "status": {"type": "string", "enum": list(STATUSES)},
                }
            ),
        },
    },
    required=["plan"],
)


class _Step(ToolArguments):
    step: str = Field(max_length=MAX_TEXT_CHARS)
    status: Literal["pending", "in_progress", "completed"]


class _Plan(ToolArguments):
    plan: list[_Step] = Field(max_length=MAX_STEPS)
    explanation: str | None = Field(default=None, max_length=MAX_TEXT_CHARS)


@dataclass(frozen=True, slots=True)
class UpdatePlan(TurnTool):
    """Passes a turn's plan on."""

    functions = (NAME,)
    # In every mode: what is declared should not change in a thread.
    declared = (_DECLARATION,)

    turn: RunningTurn

    # Calls do not overlap: of two plans the later one counts.

    async def run(self, call: RequestedCall) -> Json:
        """Notify the clients of the thread.

        Raises:
            BadCall: the plan makes no sense, or this is the mode in which plans are written.
        """
        turn = self.turn
        if turn.settings.mode == "plan":
            raise BadCall(NOT_IN_PLAN_MODE)
        wanted = call.read(_Plan)
        turn.recorder.clients.emit(
            TurnPlanUpdatedNotification(
                **turn.recorder.ids,
                explanation=wanted.explanation,
                plan=[
                    TurnPlanStep(step=step.step, status=STATUSES[step.status])
                    for step in wanted.plan
                ],
            )
        )
        return UPDATED
