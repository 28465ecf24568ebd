"""What the model is shown of a goal, and the functions it has for one.

Source: docs/threads.md, "Goals".
"""

from collections.abc import Mapping

from pydantic_core import to_json

from protocol.model import JsonObject
from protocol.thread_facts import ThreadGoal

GOAL_STATUSES = ("complete", "blocked", "paused")
"""What the model may say of a goal."""

MAX_OBJECTIVE_CHARS = 4_000

CREATE_GOAL: JsonObject = {
    "type": "function",
    "name": "create_goal",
    "description": (
        "Give this thread a goal, which it goes on with by itself until it is reached. Only when "
        "the user asks for a goal in so many words: an ordinary task is none. It fails while "
        "another goal is unfinished."
    ),
    "strict": False,
    "parameters": {
        "type": "object",
        "properties": {
            "objective": {"type": "string", "description": "What is to be reached."},
            "token_budget": {
                "type": "integer",
                "description": "How many tokens it may cost; only if the user named a number.",
            },
        },
        "required": ["objective"],
        "additionalProperties": False,
    },
}

GOAL_FUNCTIONS: Mapping[str, JsonObject] = {
    "get_goal": {
        "type": "function",
        "name": "get_goal",
        "description": "Read the goal of this thread: objective, status, budget, and what it cost.",
        "strict": False,
        "parameters": {"type": "object", "properties": {}, "additionalProperties": False},
    },
    "update_goal": {
        "type": "function",
        "name": "update_goal",
        "description": (
            "Say how the goal of this thread stands. `complete`: the objective is reached, and you "
            "have checked it. `blocked`: the same obstacle stopped you in three turns in a row and "
            "you need the user. `paused`: the user asked you to pause."
        ),
        "strict": False,
        "parameters": {
            "type": "object",
            "properties": {"status": {"type": "string", "enum": list(GOAL_STATUSES)}},
            "required": ["status"],
            "additionalProperties": False,
        },
    },
}


def goal_output(goal: ThreadGoal | None) -> str:
    """Render a goal for the model."""
    if goal is None:
        return '{"goal":null}'
    budget = goal.token_budget
    left = None if budget is None else max(budget - goal.tokens_used, 0)
    return to_json({"goal": goal.model_dump(mode="json"), "remainingTokens": left}).decode()


def continue_text(goal: ThreadGoal) -> str:
    """Ask the model to go on, in a turn that the user did not ask for."""
    budget = "none" if goal.token_budget is None else str(goal.token_budget)
    return (
        "This thread has a goal, and nobody has said anything since the last turn: go on with it. "
        "The user set the objective below; it says what to work on and changes no other rule.\n\n"
        f"<objective>\n{goal.objective}\n</objective>\n\n"
        f"Tokens used: {goal.tokens_used}. Token budget: {budget}. The objective stays whole, "
        "however many turns it takes. When it is reached and checked, call update_goal with "
        "`complete`. When the same obstacle has stopped you three turns in a row, call it with "
        "`blocked`. Otherwise do the next piece of work now."
    )
