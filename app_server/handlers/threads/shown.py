"""A thread as clients see it: its place, turns, settings, and warnings."""

from collections.abc import Sequence
from typing import Any, TypeVar

from app_server.handlers.serving import RequestContext
from app_server.handlers.views.threads import settings_response, thread_of_state, thread_settings
from app_server.handlers.views.turns import turns_of_log, turns_of_state
from app_server.rpc.context import ConnectionId
from app_server.rpc.hub import Hub
from app_server.sessions.session import ThreadSession
from app_server.threads.log.state import ThreadState
from app_server.threads.store import ThreadStore
from protocol.server.lifecycle import ConfigWarningNotification
from protocol.threads.notifications import ThreadStatusChangedNotification
from protocol.threads.settings import ThreadSettingsUpdatedNotification
from protocol.threads.start import ThreadSettingsResponse
from protocol.threads.thread import NotLoadedThreadStatus, Thread, ThreadStatus
from protocol.turns.notifications import ThreadTokenUsageUpdatedNotification
from protocol.turns.turn import Turn

Response = TypeVar("Response", bound=ThreadSettingsResponse)


def status_of(session: ThreadSession | None) -> ThreadStatus:
    """Return the status of a thread; None: it is not loaded."""
    return NotLoadedThreadStatus() if session is None else session.status


def shown_thread(
    store: ThreadStore,
    state: ThreadState,
    session: ThreadSession | None,
    turns: list[Turn] | None = None,
) -> Thread:
    """Show a thread as it is now, with some turns; without a session it is not loaded."""
    path = None if state.created.ephemeral else store.shown_path(state.id)
    return thread_of_state(state, status_of(session), path, store.organization.state, turns)


def thread_response(
    kind: type[Response], session: ThreadSession, thread: Thread, **members: Any
) -> Response:
    """Answer with a thread and its settings, and with the further members of the answer."""
    settings = session.log.state.settings
    return settings_response(kind, settings, thread, session.instructions.sources, **members)


async def logged_turns(store: ThreadStore, state: ThreadState) -> list[Turn]:
    """Return the turns of a loaded thread that its log has; none if they are all in memory."""
    if state.is_whole or state.created.ephemeral:
        return []
    return await store.history.ask(state.id, turns_of_log, True)


async def shown_turns(store: ThreadStore, state: ThreadState, *, loaded: bool) -> list[Turn]:
    """Return the turns of an answer: from memory if they are all there, else from the log."""
    if state.is_whole or state.created.ephemeral:
        return turns_of_state(state)
    return await store.history.ask(state.id, turns_of_log, loaded)


def notify_of_usage(hub: Hub, client: ConnectionId, state: ThreadState) -> None:
    """Notify a client of the tokens that a thread has used, if it has had a turn."""
    if state.usage is not None and state.turns:
        event = ThreadTokenUsageUpdatedNotification(
            thread_id=state.id, turn_id=state.turns[-1].id, token_usage=state.usage
        )
        hub.notify(client, event)


def announce_unloaded(hub: Hub, thread_id: str) -> None:
    """Notify all clients that a thread is not loaded any more."""
    gone = NotLoadedThreadStatus()
    hub.broadcast(ThreadStatusChangedNotification(thread_id=thread_id, status=gone))


def warn_of_config(
    hub: Hub, client: ConnectionId, session: ThreadSession, warnings: Sequence[str]
) -> None:
    """Send configuration warnings to the client that loaded a thread, and to its subscribers."""
    for warning in warnings:
        hub.notify(client, ConfigWarningNotification(summary=warning))
        session.clients.warning(warning)


def announce_settings(
    hub: Hub, context: RequestContext, session: ThreadSession, warnings: Sequence[str]
) -> None:
    """Notify clients, after the answer, of settings that a request has changed."""
    thread_id, settings = session.log.id, thread_settings(session.log.state.settings)
    event = ThreadSettingsUpdatedNotification(thread_id=thread_id, thread_settings=settings)
    context.after_answer(hub.emit, thread_id, event)
    for warning in warnings:
        context.after_answer(session.clients.warning, warning)
