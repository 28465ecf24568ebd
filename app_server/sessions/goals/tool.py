"""The functions with which a model reads and ends the goal of its thread.

Source: docs/threads.md, "Goals".
"""

from collections.abc import Sequence

from app_server.sessions.goals.functions import GOAL_FUNCTIONS, GOAL_STATUSES, goal_output
from app_server.sessions.goals.goals import Goals
from app_server.turns.model.features import ModelFeatures
from app_server.turns.tools.call import RequestedCall
from protocol.model import Json, JsonObject


class GoalTool:
    """The goal of a thread, in one of its turns."""

    def __init__(self, goals: Goals, turn_id: str) -> None:
        self._goals = goals
        self._turn_id = turn_id

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare the functions, while there is a goal to work on."""
        return list(GOAL_FUNCTIONS.values()) if self._goals.is_active else []

    def offers(self, call: RequestedCall) -> bool:
        """Whether it is one of the functions."""
        return call.kind == "function" and call.namespace is None and call.name in GOAL_FUNCTIONS

    def may_overlap(self, call: RequestedCall) -> bool:
        """Each is one step."""
        return True

    async def run(self, call: RequestedCall) -> Json:
        """Read the goal, or say how it stands; returns the goal.

        Raises:
            OSError: the log cannot be written.
        """
        arguments = call.arguments()
        goals = self._goals
        if call.name == "get_goal":
            return goal_output(goals.goal)
        status = arguments.get("status") if isinstance(arguments, dict) else None
        if status not in GOAL_STATUSES:
            return f"err: status must be one of {', '.join(GOAL_STATUSES)}"
        if goals.goal is None:
            return "err: this thread has no goal"
        await goals.set_status(self._turn_id, status)
        return goal_output(goals.goal)
