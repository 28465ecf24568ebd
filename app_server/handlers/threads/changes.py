"""Changes of a thread that run no turn: the archive, reverting, deleting, items, elicitations.

Source: docs/wire.md, "History and search"; docs/tools.md, "Elicitations".
"""

import contextlib
from collections import Counter
from collections.abc import Sequence

from app_server.handlers.errors import loaded_thread, no_rollout, thread_failures, turn_not_found
from app_server.handlers.services import Services
from app_server.handlers.serving import RequestContext, serves
from app_server.handlers.threads.history import refuse_ephemeral
from app_server.handlers.threads.shown import (
    announce_unloaded,
    shown_thread,
)
from app_server.handlers.threads.stored import show_thread
from app_server.handlers.views.turns import first_pages
from app_server.models.prompt.response_items import first_problem
from app_server.sessions.out_of_band import NoOpenElicitation, TooManyElicitations
from app_server.sessions.session import ThreadSession
from app_server.threads.failures import ThreadNotFound
from app_server.threads.history.pages import HistoryReader
from app_server.threads.log.outline import TurnOutline
from app_server.threads.log.state import ThreadState
from protocol.jsonrpc.errors import invalid_params, invalid_request
from protocol.log.rollout import ArchivedChanged, Record
from protocol.threads.changes import (
    ThreadArchiveParams,
    ThreadArchiveResponse,
    ThreadDecrementElicitationParams,
    ThreadDecrementElicitationResponse,
    ThreadDeleteParams,
    ThreadDeleteResponse,
    ThreadIncrementElicitationParams,
    ThreadIncrementElicitationResponse,
    ThreadInjectItemsParams,
    ThreadInjectItemsResponse,
    ThreadRevertParams,
    ThreadRevertResponse,
    ThreadUnarchiveParams,
    ThreadUnarchiveResponse,
    ThreadUnsubscribeParams,
    ThreadUnsubscribeResponse,
)
from protocol.threads.notifications import (
    ThreadArchivedNotification,
    ThreadDeletedNotification,
    ThreadRevertedNotification,
    ThreadUnarchivedNotification,
)


@serves("thread/revert")
async def revert_thread(
    context: RequestContext, params: ThreadRevertParams
) -> ThreadRevertResponse:
    """Drop a turn and all after it; a running turn is interrupted first."""
    thread_id, turn_id = params.thread_id, params.before_turn_id
    refuse_ephemeral(context.services.sessions, thread_id, context.method)
    with thread_failures(thread_id):
        session = context.services.sessions.get(thread_id)
        known = await context.services.store.history.ask(thread_id, _turn, turn_id)
        if known is None:
            raise turn_not_found(turn_id)
        await session.revert(turn_id)
        places = await context.services.store.history.ask(thread_id, first_pages, None)
    event = ThreadRevertedNotification(thread_id=thread_id)
    context.after_answer(context.services.hub.broadcast, event)
    return ThreadRevertResponse(
        thread=shown_thread(context.services.store, session.log.state, session),
        turns_backwards_cursor=places["turns_backwards_cursor"],
        items_backwards_cursor=places["items_backwards_cursor"],
    )


def _turn(reader: HistoryReader, turn_id: str) -> TurnOutline | None:
    return reader.turn(turn_id)


@serves("thread/delete")
async def delete_thread(
    context: RequestContext, params: ThreadDeleteParams
) -> ThreadDeleteResponse:
    """Remove a thread for good; a loaded one is stopped and unloaded first."""
    thread_id = params.thread_id
    session = context.services.sessions.find(thread_id)
    if session is not None and session.log.ephemeral:
        raise invalid_request(
            f"thread is not persisted and cannot be deleted: {thread_id}",
            "ephemeralThread",
            threadId=thread_id,
        )
    with thread_failures(thread_id, no_rollout(thread_id)):
        if await context.services.sessions.delete(thread_id):
            announce_unloaded(context.services.hub, thread_id)
    signals = context.services.signals
    await signals.end_wakes(thread_id, "threadNotFound", "the thread was deleted")
    event = ThreadDeletedNotification(thread_id=thread_id)
    context.after_answer(context.services.hub.broadcast, event)
    return ThreadDeleteResponse()


class OpenElicitations:
    """The out-of-band elicitations that clients have opened and not settled."""

    def __init__(self, _: Services) -> None:
        self.by_connection: dict[int, Counter[ThreadSession]] = {}

    def settle_all(self, connection_id: int) -> None:
        """Settle what a client that has gone leaves open."""
        for session in self.by_connection.pop(connection_id, Counter[ThreadSession]()).elements():
            with contextlib.suppress(NoOpenElicitation):
                session.out_of_band.settle()


@serves("thread/increment_elicitation")
async def increment_elicitation(
    context: RequestContext, params: ThreadIncrementElicitationParams
) -> ThreadIncrementElicitationResponse:
    """Open an elicitation and pause the thread's timeouts; a disconnect settles a client's own."""
    session = loaded_thread(context.services.sessions, params.thread_id)
    questions = session.out_of_band
    try:
        questions.open()
    except TooManyElicitations as exc:
        text = f"there are {questions.count} out-of-band elicitations already"
        raise invalid_request(text, "tooManyElicitations") from exc
    connection_id = context.connection_id
    context.services.part(OpenElicitations).by_connection.setdefault(connection_id, Counter())[
        session
    ] += 1
    context.services.hub.connections.when_gone(
        connection_id, context.services.part(OpenElicitations).settle_all
    )
    return ThreadIncrementElicitationResponse(count=questions.count, paused=True)


@serves("thread/decrement_elicitation")
async def decrement_elicitation(
    context: RequestContext, params: ThreadDecrementElicitationParams
) -> ThreadDecrementElicitationResponse:
    """Settle an elicitation; the thread's timeouts resume after the last one."""
    session = loaded_thread(context.services.sessions, params.thread_id)
    questions = session.out_of_band
    try:
        questions.settle()
    except NoOpenElicitation as exc:
        text = "out-of-band elicitation count is already zero"
        raise invalid_request(text, "noElicitation") from exc
    opened_by = context.services.part(OpenElicitations).by_connection
    own = opened_by.get(context.connection_id, Counter())
    # Another client may settle what one has opened.
    owners = (opened for opened in (own, *opened_by.values()) if opened[session])
    if (owner := next(owners, None)) is not None:
        owner[session] -= 1
    return ThreadDecrementElicitationResponse(count=questions.count, paused=bool(questions.count))


@serves("thread/unsubscribe")
async def unsubscribe(
    context: RequestContext, params: ThreadUnsubscribeParams
) -> ThreadUnsubscribeResponse:
    """Unsubscribe from a thread; with `unload`, unload it too if it is quiet."""
    if context.services.sessions.find(params.thread_id) is None:
        return ThreadUnsubscribeResponse(
            status="notLoaded", unloaded=True if params.unload else None
        )
    listened = context.services.hub.unsubscribe(context.connection_id, params.thread_id)
    unloaded = None
    if params.unload:
        await context.services.sessions.unloading.unload_quiet(params.thread_id)
        unloaded = context.services.sessions.find(params.thread_id) is None
    else:
        last_left = context.services.sessions.unloading.last_left
        context.after_answer(context.services.tasks.start_soon, last_left, params.thread_id)
    return ThreadUnsubscribeResponse(
        status="unsubscribed" if listened else "notSubscribed", unloaded=unloaded
    )


@serves("thread/archive")
async def archive_thread(
    context: RequestContext, params: ThreadArchiveParams
) -> ThreadArchiveResponse:
    """Unload a thread, ending its turn, and move it out of the default list."""
    thread_id = params.thread_id
    record = ArchivedChanged(at_ms=context.services.clock.now_ms(), archived=True)
    with thread_failures(thread_id, no_rollout(thread_id)):
        if await context.services.sessions.archive(thread_id, record):
            announce_unloaded(context.services.hub, thread_id)
    signals = context.services.signals
    await signals.end_wakes(thread_id, "threadArchived", "the thread was archived")
    event = ThreadArchivedNotification(thread_id=thread_id)
    context.after_answer(context.services.hub.broadcast, event)
    return ThreadArchiveResponse()


@serves("thread/unarchive")
async def unarchive_thread(
    context: RequestContext, params: ThreadUnarchiveParams
) -> ThreadUnarchiveResponse:
    """Bring an archived thread back into the default list."""
    thread_id = params.thread_id
    record = ArchivedChanged(at_ms=context.services.clock.now_ms(), archived=False)

    def decide(state: ThreadState) -> Sequence[Record]:
        if not state.archived:
            raise ThreadNotFound(thread_id)
        return [record]

    with thread_failures(thread_id, f"no archived rollout found for thread id {thread_id}"):
        if context.services.sessions.find(thread_id) is None:
            # One of Codex's that is not archived is not imported either.
            decide(await context.services.store.read(thread_id))
        state, _ = await context.services.sessions.change(thread_id, decide)
    event = ThreadUnarchivedNotification(thread_id=thread_id)
    context.after_answer(context.services.hub.broadcast, event)
    return ThreadUnarchiveResponse(thread=show_thread(context.services, state))


@serves("thread/inject_items")
async def inject_items(
    context: RequestContext, params: ThreadInjectItemsParams
) -> ThreadInjectItemsResponse:
    """Append raw items to the model's history; answered when they are on disk."""
    if not params.items:
        raise invalid_request("items must not be empty", "emptyItems")
    problem = first_problem(params.items)
    if problem is not None:
        index, rule = problem
        field = f"items[{index}]"
        raise invalid_params(f"Invalid params: `{field}`: {rule}", field=field, rule=rule)
    with thread_failures(params.thread_id):
        session = await context.services.sessions.writable(params.thread_id)
        await session.input.inject(params.items)
    return ThreadInjectItemsResponse()
