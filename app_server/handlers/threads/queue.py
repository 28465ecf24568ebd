"""thread/queue/*: input that waits until its thread is idle. Source: docs/queue.md."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from app_server.handlers.errors import config_failures, no_rollout, thread_failures
from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.threads.stored import (
    not_for_ephemeral,
)
from app_server.handlers.turns.requests import check_length
from app_server.handlers.views.pages import fitting
from app_server.handlers.views.turns import started_turn
from app_server.sessions.session import ThreadSession
from app_server.threads.failures import ThreadArchived
from app_server.threads.log.state import (
    MAX_ENTRY_BYTES,
    Plan,
    QueueRefusal,
    QueueState,
    Result,
    adding,
    changing,
    removing,
    reordering,
)
from app_server.threads.operations import made_id
from protocol.cursors import InvalidCursor, parse_offset
from protocol.jsonrpc.errors import invalid_request
from protocol.log.rollout import (
    QueueReordered,
    SubmissionChanged,
    SubmissionQueued,
    SubmissionRemoved,
)
from protocol.threads.queue import (
    QueuedSubmission,
    ThreadQueueAddParams,
    ThreadQueueAddResponse,
    ThreadQueueDeleteParams,
    ThreadQueueDeleteResponse,
    ThreadQueueListParams,
    ThreadQueueListResponse,
    ThreadQueueReorderParams,
    ThreadQueueReorderResponse,
    ThreadQueueStartParams,
    ThreadQueueStartResponse,
    ThreadQueueUpdateParams,
    ThreadQueueUpdateResponse,
)
from protocol.turns.items import UserInput

DEFAULT_PAGE = 25

MAX_CURSOR_DIGITS = 9


@serves("thread/queue/add")
async def add_to_queue(
    context: RequestContext, params: ThreadQueueAddParams
) -> ThreadQueueAddResponse:
    """Put input at the end of the queue; answered when it is on disk."""
    _check_input(params.input)
    entry = SubmissionQueued(
        at_ms=context.services.clock.now_ms(),
        submission_id=made_id(context.services.clock),
        client_user_message_id=params.client_user_message_id,
        input=params.input,
        responsesapi_client_metadata=params.responsesapi_client_metadata,
    )
    queued = await _change(context, params.thread_id, partial(adding, entry))
    return ThreadQueueAddResponse(queued_submission=_shown(queued))


@serves("thread/queue/update")
async def update_queued(
    context: RequestContext, params: ThreadQueueUpdateParams
) -> ThreadQueueUpdateResponse:
    """Give a waiting entry another input."""
    _check_input(params.input)
    change = SubmissionChanged(
        at_ms=context.services.clock.now_ms(),
        submission_id=params.queued_submission_id,
        input=params.input,
        responsesapi_client_metadata=params.responsesapi_client_metadata,
    )
    changed = await _change(context, params.thread_id, partial(changing, change))
    return ThreadQueueUpdateResponse(queued_submission=_shown(changed))


@serves("thread/queue/delete")
async def delete_from_queue(
    context: RequestContext, params: ThreadQueueDeleteParams
) -> ThreadQueueDeleteResponse:
    """Take an entry out, unless it has become a turn."""
    removal = SubmissionRemoved(
        at_ms=context.services.clock.now_ms(), submission_id=params.queued_submission_id
    )
    removed = await _change(context, params.thread_id, partial(removing, removal))
    return ThreadQueueDeleteResponse(deleted=removed)


@serves("thread/queue/reorder")
async def reorder_queue(
    context: RequestContext, params: ThreadQueueReorderParams
) -> ThreadQueueReorderResponse:
    """Put the whole queue into another order."""
    order = QueueReordered(
        at_ms=context.services.clock.now_ms(), submission_ids=params.queued_submission_ids
    )
    await _change(context, params.thread_id, partial(reordering, order))
    return ThreadQueueReorderResponse()


@serves("thread/queue/start")
async def start_queue(
    context: RequestContext, params: ThreadQueueStartParams
) -> ThreadQueueStartResponse:
    """Begin a turn with an entry, also while the queue is paused."""
    thread_id = params.thread_id
    with _queue_failures(thread_id), config_failures():
        session = _loaded(context.services, thread_id)
        if session is None:
            await _stored(context.services, thread_id)
            raise invalid_request(
                "resume the thread before starting a queued message",
                "threadNotLoaded",
                threadId=thread_id,
            )
        turn = await session.queue.start(params.queued_submission_id)
    context.after_answer(session.clients.queue_changed)
    context.after_answer(turn.run_soon)
    return ThreadQueueStartResponse(turn=started_turn(turn.id))


@serves("thread/queue/list")
async def list_queue(
    context: RequestContext, params: ThreadQueueListParams
) -> ThreadQueueListResponse:
    """Page through the queue; a page ends early where an answer would become too long."""
    with _queue_failures(params.thread_id):
        session = _loaded(context.services, params.thread_id)
        queue = (
            await _stored(context.services, params.thread_id)
            if session is None
            else session.queue.state
        )
    first = _place(params.cursor)
    limit = DEFAULT_PAGE if params.limit is None else max(params.limit, 1)
    asked = queue.entries[first : first + limit]
    page = fitting(asked, MAX_ENTRY_BYTES, lambda entry: queue.sizes[entry.submission_id])
    end = first + len(page)
    return ThreadQueueListResponse(
        data=[_shown(entry) for entry in page],
        next_cursor=str(end) if end < len(queue.entries) else None,
    )


async def _change(context: RequestContext, thread_id: str, plan: Plan[Result]) -> Result:
    with _queue_failures(thread_id):
        _loaded(context.services, thread_id)
        result, changed = await context.services.sessions.change_queue(thread_id, plan)
    session = context.services.sessions.find(thread_id)
    if changed and session is not None:
        context.after_answer(session.clients.queue_changed)
        context.after_answer(session.run_next_soon)
    return result


def _loaded(services: Services, thread_id: str) -> ThreadSession | None:
    session = services.sessions.find(thread_id)
    if session is not None and session.log.ephemeral:
        raise not_for_ephemeral("queued submissions", thread_id)
    return session


async def _stored(services: Services, thread_id: str) -> QueueState:
    state = await services.store.read(thread_id)
    if state.archived:
        raise ThreadArchived(thread_id)
    return state.queue


@contextmanager
def _queue_failures(thread_id: str) -> Iterator[None]:
    """Translate what a queue refuses, and failures around its thread."""
    with thread_failures(thread_id, no_rollout(thread_id)):
        try:
            yield
        except QueueRefusal as exc:
            raise invalid_request(str(exc), exc.word, threadId=thread_id, **exc.facts) from exc


def _check_input(content: list[UserInput]) -> None:
    if not content:
        raise invalid_request(
            "only user input can be added to the user-message queue", "emptySubmission"
        )
    check_length(content)


def _place(cursor: str | None) -> int:
    if cursor is None:
        return 0
    try:
        return parse_offset(cursor, MAX_CURSOR_DIGITS)
    except InvalidCursor:
        raise invalid_request(
            f"invalid queue pagination cursor: {cursor}", "invalidCursor", cursor=cursor
        ) from None


def _shown(entry: SubmissionQueued) -> QueuedSubmission:
    return QueuedSubmission(
        id=entry.submission_id,
        input=entry.input,
        client_user_message_id=entry.client_user_message_id,
        responsesapi_client_metadata=entry.responsesapi_client_metadata,
    )
