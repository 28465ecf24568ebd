"""thread/goal/*: what a thread works towards, turn after turn."""

from typing import Literal

from typing_extensions import TypeAliasType

from protocol.model import Int64, WireModel
from protocol.thread_ids import ThreadIdParam
from protocol.threads.thread import ThreadGoal, ThreadGoalStatus

ThreadGoalMutationOrigin = TypeAliasType("ThreadGoalMutationOrigin", Literal["user", "automatic"])
"""Whether the user asked for a change of the goal, or it came about by itself."""


class ThreadGoalClearParams(WireModel):
    """Remove a thread's goal."""

    thread_id: ThreadIdParam
    origin: ThreadGoalMutationOrigin | None = None
    """Without it the change does not count as one that the user asked for."""


class ThreadGoalClearResponse(WireModel):
    """Whether there was a goal to remove."""

    cleared: bool


class ThreadGoalGetParams(WireModel):
    """Look at a thread's goal."""

    thread_id: ThreadIdParam


class ThreadGoalGetResponse(WireModel):
    """The thread's goal."""

    goal: ThreadGoal | None = None
    """Null if the thread has none."""


class ThreadGoalSetParams(WireModel):
    """Give a thread a goal, or change the one it has."""

    thread_id: ThreadIdParam
    origin: ThreadGoalMutationOrigin | None = None
    """Without it the change does not count as one that the user asked for."""
    objective: str | None = None
    status: ThreadGoalStatus | None = None
    token_budget: Int64 | None = None
    """Tokens that the goal may cost; absent keeps the limit, null removes it."""


class ThreadGoalSetResponse(WireModel):
    """The goal as it is now."""

    goal: ThreadGoal


class ThreadGoalClearedNotification(WireModel):
    """A thread's goal was removed."""

    thread_id: str
