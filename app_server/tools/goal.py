"""The functions with which a model makes, reads and ends the goal of its thread.

Source: docs/threads.md, "Goals".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field
from pydantic_core import to_json

from app_server.models.catalogue.models import ModelFeatures
from app_server.turns.goals import MAX_OBJECTIVE_CHARS, Goals, is_active
from app_server.turns.tools import RequestedCall, ToolArguments, TurnTool, function_declaration
from protocol.model import Json, JsonObject
from protocol.threads.thread import ThreadGoal

STATUSES = ("complete", "blocked", "paused")
"""Statuses that the model may give a goal."""

CREATE_GOAL = function_declaration(
    "create_goal",
    "Give this thread a goal, which it goes on with by itself until it is reached. Only when "
    "the user asks for a goal in so many words: an ordinary task is none. It fails while "
    "another goal is unfinished.",
    {
        "objective": {"type": "string", "description": "What is to be reached."},
        "token_budget": {
            "type": "integer",
            "description": "How many tokens it may cost; only if the user named a number.",
        },
    },
    ["objective"],
)

GOAL_FUNCTIONS: Mapping[str, JsonObject] = {
    "get_goal": {
        "type": "function",
        "name": "get_goal",
        "description": "Read the goal of this thread: objective, status, budget, and what it cost.",
        "strict": False,
        "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
    },
    "update_goal": function_declaration(
        "update_goal",
        "Say how the goal of this thread stands. `complete`: the objective is reached, and you "
        "have checked it. `blocked`: the same obstacle stopped you in three turns in a row and "
        "you need the user. `paused`: the user asked you to pause.",
        {"status": {"type": "string", "enum": list(STATUSES)}},
    ),
}


class _NewGoal(ToolArguments):
    objective: str = Field(max_length=MAX_OBJECTIVE_CHARS)
    token_budget: int | None = None


@dataclass(frozen=True, slots=True)
class GoalTool(TurnTool):
    """The goal of a thread, in one of its turns."""

    functions = ("create_goal", *GOAL_FUNCTIONS)

    goals: Goals
    turn_id: str

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare the one that makes a goal, and the others while there is one to work on."""
        create = [CREATE_GOAL] if self.goals.may_be_created else []
        return [*create, *(GOAL_FUNCTIONS.values() if is_active(self.goals.goal) else ())]

    def may_overlap(self, call: RequestedCall) -> bool:
        """Each is one step."""
        return True

    async def _create(self, wanted: _NewGoal) -> str:
        objective = wanted.objective.strip()
        if not objective:
            return "err: the objective of a goal must not be empty"
        if wanted.token_budget is not None and wanted.token_budget <= 0:
            return "err: the budget of a goal must be positive"
        if not self.goals.may_be_created:
            return "err: a thread in memory alone has no goals"
        if not await self.goals.create(self.turn_id, objective, wanted.token_budget):
            return "err: this thread has an unfinished goal"
        return _output(self.goals.goal)

    async def run(self, call: RequestedCall) -> Json:
        """Read the goal, or say how it stands; returns the goal.

        Raises:
            OSError: the log cannot be written.
        """
        goals = self.goals
        if call.name == "create_goal":
            return await self._create(call.read(_NewGoal))
        arguments = call.arguments()
        if call.name == "get_goal":
            return _output(goals.goal)
        status = arguments.get("status") if isinstance(arguments, dict) else None
        if status not in STATUSES:
            return f"err: status must be one of {', '.join(STATUSES)}"
        if goals.goal is None:
            return "err: this thread has no goal"
        await goals.set_status(self.turn_id, status)
        return _output(goals.goal)


def _output(goal: ThreadGoal | None) -> str:
    if goal is None:
        return '{"goal":null}'
    budget = goal.token_budget
    left = None if budget is None else max(budget - goal.tokens_used, 0)
    return to_json({"goal": goal.model_dump(mode="json"), "remainingTokens": left}).decode()
