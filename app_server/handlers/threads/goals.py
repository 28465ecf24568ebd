"""thread/goal/*: what a thread works towards, turn after turn.

Source: docs/threads.md, "Goals".
"""

from collections.abc import Sequence

from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.threads.stored import (
    change_thread,
    not_for_ephemeral,
    stored_state,
)
from app_server.threads.log.state import ThreadState
from app_server.turns.goals import MAX_OBJECTIVE_CHARS, within_budget
from protocol.jsonrpc.errors import invalid_request
from protocol.log.metadata import GoalChanged
from protocol.log.rollout import Record
from protocol.threads.goals import (
    ThreadGoalClearedNotification,
    ThreadGoalClearParams,
    ThreadGoalClearResponse,
    ThreadGoalGetParams,
    ThreadGoalGetResponse,
    ThreadGoalSetParams,
    ThreadGoalSetResponse,
)
from protocol.threads.notifications import ThreadGoalUpdatedNotification
from protocol.threads.thread import ThreadGoal


@serves("thread/goal/get")
async def get_goal(context: RequestContext, params: ThreadGoalGetParams) -> ThreadGoalGetResponse:
    """Show a thread's goal."""
    state = await stored_state(context.services, params.thread_id)
    if state.created.ephemeral:
        raise not_for_ephemeral("goals", state.id)
    return ThreadGoalGetResponse(goal=state.metadata.goal)


@serves("thread/goal/set")
async def set_goal(context: RequestContext, params: ThreadGoalSetParams) -> ThreadGoalSetResponse:
    """Give a thread a goal, or change the one it has; a loaded thread begins to work on it."""
    _check(params)
    at_ms = context.services.clock.now_ms()

    def decide(state: ThreadState) -> Sequence[Record]:
        return [GoalChanged(at_ms=at_ms, goal=_changed(state, params, at_ms // 1000))]

    _, added = await change_thread(
        context.services,
        params.thread_id,
        decide,
        ephemeral=not_for_ephemeral("goals", params.thread_id),
    )
    (record,) = added
    assert isinstance(record, GoalChanged)
    assert record.goal is not None
    event = ThreadGoalUpdatedNotification(thread_id=params.thread_id, goal=record.goal)
    context.after_answer(context.services.hub.broadcast, event)
    session = context.services.sessions.find(params.thread_id)
    if session is not None:
        session.goals.user_changed()
        context.after_answer(session.run_next_soon)
    return ThreadGoalSetResponse(goal=record.goal)


@serves("thread/goal/clear")
async def clear_goal(
    context: RequestContext, params: ThreadGoalClearParams
) -> ThreadGoalClearResponse:
    """Remove a thread's goal; the running turn goes on."""
    at_ms = context.services.clock.now_ms()

    def decide(state: ThreadState) -> Sequence[Record]:
        return [] if state.metadata.goal is None else [GoalChanged(at_ms=at_ms, goal=None)]

    _, added = await change_thread(
        context.services,
        params.thread_id,
        decide,
        ephemeral=not_for_ephemeral("goals", params.thread_id),
    )
    if added:
        event = ThreadGoalClearedNotification(thread_id=params.thread_id)
        context.after_answer(context.services.hub.broadcast, event)
    return ThreadGoalClearResponse(cleared=bool(added))


def _check(params: ThreadGoalSetParams) -> None:
    if params.objective is not None:
        if not params.objective.strip():
            raise invalid_request("goal objective must not be empty", "invalidGoal")
        if len(params.objective.strip()) > MAX_OBJECTIVE_CHARS:
            raise invalid_request(
                f"goal objective must be at most {MAX_OBJECTIVE_CHARS} characters", "invalidGoal"
            )
    if params.token_budget is not None and params.token_budget <= 0:
        raise invalid_request("goal budgets must be positive when provided", "invalidGoal")


def _changed(state: ThreadState, params: ThreadGoalSetParams, now_s: int) -> ThreadGoal:
    goal = state.metadata.goal
    if goal is None and params.objective is None:
        raise invalid_request(f"cannot update goal for thread {state.id}: no goal exists", "noGoal")
    goal = goal or ThreadGoal(
        thread_id=state.id,
        objective="",
        status="active",
        tokens_used=0,
        time_used_seconds=0,
        created_at=now_s,
        updated_at=now_s,
    )
    changed: dict[str, object] = {"updated_at": now_s}
    if params.objective is not None:
        changed["objective"] = params.objective.strip()
    if params.status is not None:
        changed["status"] = params.status
    if "token_budget" in params.model_fields_set:
        changed["token_budget"] = params.token_budget
    return within_budget(goal.model_copy(update=changed))
