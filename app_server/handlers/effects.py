"""Effects of requests that were cut off: found when the request is sent again, and answered.

A request whose method is not named here is run again, which is as good (`Effect`,
protocol/contract/specs.py).
Source: docs/sending_again.md, "After a crash".
"""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import anyio.to_thread

from app_server.handlers.errors import known_filing, thread_failures
from app_server.handlers.serving import RequestContext
from app_server.handlers.threads.stored import show_thread
from app_server.handlers.views.turns import first_pages, started_turn
from app_server.signals.service import SignalUnknown
from app_server.signals.shown_wakes import shown_wake
from app_server.threads.failures import InvalidThreadId, ThreadNotFound
from app_server.threads.log.state import ThreadState
from app_server.threads.operations import Operation
from protocol.contract.methods import METHODS
from protocol.contract.specs import LOGS
from protocol.log.metadata import OperationLogged
from protocol.model import JsonObject, WireModel
from protocol.threads.thread import ThreadAttachment, ThreadGoal


class Found(NamedTuple):
    """An operation in the log of a thread."""

    context: RequestContext
    request: Any
    state: ThreadState
    operation: Operation
    logged: OperationLogged


async def find_effect(
    context: RequestContext, request: WireModel, operation: Operation
) -> WireModel | None:
    """Make the answer of a request whose effect is there; None: it is to be run again."""
    spec = METHODS[context.method]
    if spec.effect is not LOGS:
        find = _FOUND.get(context.method)
        return None if find is None else await find(context, request, operation)
    thread_id: str = request.__dict__["thread_id"]
    session = context.services.sessions.find(thread_id)
    try:
        state = (
            await context.services.store.read(thread_id) if session is None else session.log.state
        )
    except (InvalidThreadId, ThreadNotFound):
        return None
    logged = state.metadata.operations.get(operation.id)
    if logged is None:
        return None
    found = Found(context, request, state, operation, logged)
    members = _ANSWERS.get(context.method)
    answer: WireModel = spec.result(**({} if members is None else await members(found)))
    return answer


# Members of answers, by what is in the log; methods that are not here are answered with none.


async def _attachment(found: Found) -> JsonObject:
    params = found.request
    attachment = ThreadAttachment(
        id=found.operation.made_id,
        attachment_type=params.attachment_type,
        identity_key=params.identity_key,
        payload=params.payload,
        created_at=found.logged.at_ms // 1000,
    )
    return {"outcome": "created", "attachment": attachment}


async def _budget(found: Found) -> JsonObject:
    from app_server.handlers.threads.budget import budget_of

    return {"budget": await budget_of(found.context.services, found.state)}


async def _cleared(_: Found) -> JsonObject:
    return {"cleared": True}


async def _deleted(_: Found) -> JsonObject:
    return {"deleted": True}


async def _goal(found: Found) -> JsonObject:
    # As it is now, or where it was cleared since as it was asked for.
    params, at_s = found.request, found.logged.at_ms // 1000
    asked = ThreadGoal(
        thread_id=found.state.id,
        objective=params.objective or "",
        status=params.status or "active",
        token_budget=params.token_budget,
        tokens_used=0,
        time_used_seconds=0,
        created_at=at_s,
        updated_at=at_s,
    )
    return {"goal": found.state.metadata.goal or asked}


async def _plan_prompt(_: Found) -> JsonObject:
    from app_server.handlers.threads.context import PROMPT

    return {"prompt": PROMPT}


async def _queued(found: Found) -> JsonObject:
    params = found.request
    changed = getattr(params, "queued_submission_id", None)
    waiting = {entry.submission_id: entry for entry in found.state.queue.entries}
    entry = waiting.get(changed or found.operation.made_id)
    named = getattr(params, "client_user_message_id", "") if entry is None else ""
    return {
        "queued_submission": {
            "id": changed or found.operation.made_id,
            "input": params.input,
            "client_user_message_id": named if entry is None else entry.client_user_message_id,
            "responsesapi_client_metadata": params.responsesapi_client_metadata,
        }
    }


async def _read_state(found: Found) -> JsonObject:
    return {"read_state": found.state.metadata.read_state}


async def _review(found: Found) -> JsonObject:
    from app_server.handlers.turns.code_review import review_turn

    turn = review_turn(_turn_id(found), found.request.target)
    return {"turn": turn, "review_thread_id": found.state.id}


async def _reverted(found: Found) -> JsonObject:
    history = found.context.services.store.history
    with thread_failures(found.state.id):
        places = await history.ask(found.state.id, first_pages, None)
    return {
        "thread": show_thread(found.context.services, found.state),
        "turns_backwards_cursor": places["turns_backwards_cursor"],
        "items_backwards_cursor": places["items_backwards_cursor"],
    }


async def _steered(found: Found) -> JsonObject:
    return {"turn_id": _turn_id(found)}


async def _thread(found: Found) -> JsonObject:
    return {"thread": show_thread(found.context.services, found.state)}


async def _turn(found: Found) -> JsonObject:
    turn = started_turn(_turn_id(found))
    for known in found.state.turns:
        if known.id == turn.id:
            turn = turn.model_copy(update={"status": known.status})
    return {"turn": turn}


def _turn_id(found: Found) -> str:
    turn_id = found.logged.turn_id
    assert turn_id is not None, f"{found.context.method} needs a turn"
    return turn_id


_ANSWERS: Mapping[str, Callable[[Found], Awaitable[JsonObject]]] = {
    "review/start": _review,
    "thread/attachment/add": _attachment,
    "thread/budget/set": _budget,
    "thread/goal/clear": _cleared,
    "thread/goal/set": _goal,
    "thread/metadata/update": _thread,
    "thread/prepareApprovedPlan": _plan_prompt,
    "thread/queue/add": _queued,
    "thread/queue/delete": _deleted,
    "thread/queue/start": _turn,
    "thread/queue/update": _queued,
    "thread/readState/update": _read_state,
    "thread/revert": _reverted,
    "thread/unarchive": _thread,
    "turn/start": _turn,
    "turn/steer": _steered,
}


# What is there, or gone, tells by itself that the request was done.


async def _directory_made(_: RequestContext, request: Any, __: Operation) -> WireModel | None:
    return await _done_if("fs/createDirectory", Path(request.path).is_dir)


async def _removed(_: RequestContext, request: Any, __: Operation) -> WireModel | None:
    path = Path(request.path)
    return await _done_if("fs/remove", lambda: not path.exists() and not path.is_symlink())


async def _done_if(method: str, is_done: Callable[[], bool]) -> WireModel | None:
    try:
        done = await anyio.to_thread.run_sync(is_done)
    except (OSError, ValueError):
        # The method says what is wrong with the path.
        return None
    answer: WireModel = METHODS[method].result()
    return answer if done else None


async def _forked(context: RequestContext, request: Any, operation: Operation) -> WireModel | None:
    from app_server.handlers.threads.start import fork_again

    return await fork_again(context, request, operation.made_id)


async def _interrupted(context: RequestContext, request: Any, _: Operation) -> WireModel | None:
    session = context.services.sessions.find(request.thread_id)
    if session is not None and session.slot.active_turn_id == request.turn_id:
        return None
    answer: WireModel = METHODS[context.method].result()
    return answer


async def _marketplace_removed(
    context: RequestContext, request: Any, _: Operation
) -> WireModel | None:
    config = await context.services.configuration.read()
    tables = config.document.get("marketplaces")
    if isinstance(tables, dict) and request.marketplace_name in tables:
        return None
    answer: WireModel = METHODS[context.method].result(
        marketplace_name=request.marketplace_name, installed_root=None
    )
    return answer


async def _project_deleted(context: RequestContext, request: Any, _: Operation) -> WireModel | None:
    filing = await known_filing(context.services.store.organization, is_asked_for=True)
    answer: WireModel = METHODS[context.method].result()
    return None if request.project_id in filing.projects else answer


async def _recalled(context: RequestContext, request: Any, _: Operation) -> WireModel | None:
    signals = await context.services.signals.get()
    try:
        entry = await signals.read(request.source, request.id)
    except SignalUnknown:
        return None
    answer: WireModel = METHODS[context.method].result(receipt=entry.receipt())
    return answer if entry.stage == "recalled" else None


async def _section_deleted(context: RequestContext, request: Any, _: Operation) -> WireModel | None:
    filing = await known_filing(context.services.store.organization, is_asked_for=True)
    answer: WireModel = METHODS[context.method].result()
    return None if request.section_id in filing.sections else answer


async def _thread_deleted(context: RequestContext, request: Any, _: Operation) -> WireModel | None:
    if context.services.sessions.find(request.thread_id) is not None:
        return None
    try:
        is_there = await context.services.store.exists(request.thread_id)
    except InvalidThreadId:
        return None
    answer: WireModel = METHODS[context.method].result()
    return None if is_there else answer


async def _wake_cancelled(context: RequestContext, request: Any, _: Operation) -> WireModel | None:
    wake = await (await context.services.signals.wakes()).find(request.wake_id)
    if wake is None or (wake.thread_id, wake.state) != (request.thread_id, "cancelled"):
        return None
    answer: WireModel = METHODS[context.method].result(wake=shown_wake(wake))
    return answer


_FOUND: Mapping[str, Callable[[RequestContext, Any, Operation], Awaitable[WireModel | None]]] = {
    "fs/createDirectory": _directory_made,
    "fs/remove": _removed,
    "marketplace/remove": _marketplace_removed,
    "project/delete": _project_deleted,
    "signal/recall": _recalled,
    "thread/delete": _thread_deleted,
    "thread/fork": _forked,
    "thread/wake/cancel": _wake_cancelled,
    "threadSection/delete": _section_deleted,
    "turn/interrupt": _interrupted,
}
