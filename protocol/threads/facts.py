"""Values that clients see and that stand in the log of a thread: its goal, what is attached to it.

Apart from `planning`, as every server needs them from its start.
"""

from typing import Literal

from typing_extensions import TypeAliasType

from protocol.model import Int64, Json, WireModel
from protocol.threads.thread import ThreadReadState

ThreadGoalStatus = TypeAliasType(
    "ThreadGoalStatus",
    Literal["active", "paused", "blocked", "usageLimited", "budgetLimited", "complete"],
)
"""How a goal stands: pursued, held up for some reason, or reached."""


class ThreadGoal(WireModel):
    """What a thread works towards, turn after turn. Times are Unix seconds."""

    thread_id: str
    objective: str
    status: ThreadGoalStatus
    token_budget: Int64 | None = None
    """Tokens that the goal may cost; null means no limit."""
    tokens_used: Int64
    time_used_seconds: Int64
    created_at: Int64
    updated_at: Int64


class ThreadAttachment(WireModel):
    """Something that was attached to a thread."""

    id: str
    attachment_type: str
    identity_key: str
    payload: Json
    created_at: Int64
    """Unix seconds."""


class ThreadGoalUpdatedNotification(WireModel):
    """A thread's goal is new or has changed."""

    thread_id: str
    turn_id: str | None = None
    """The turn in which it changed, if it was in one."""
    goal: ThreadGoal


class ThreadReadStateChangedNotification(WireModel):
    """How far a thread has been read changed."""

    thread_id: str
    read_state: ThreadReadState
