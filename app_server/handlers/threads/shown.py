"""What answers show of a thread: where it is, and its turns."""

from functools import partial

from app_server.sessions.session import ThreadSession
from app_server.threads.log.state.thread import ThreadState
from app_server.threads.store import ThreadStore
from app_server.views.threads import (
    turns_of_log,
    turns_of_state,
)
from protocol.turns import Turn


def path_of(store: ThreadStore, session: ThreadSession) -> str | None:
    """Return where a loaded thread is on disk; None for one that is not."""
    return None if session.thread.ephemeral else store.shown_path(session.thread.id)


async def logged_turns(store: ThreadStore, state: ThreadState) -> list[Turn]:
    """Return the turns of a loaded thread that its log has; none if they are all in memory."""
    if state.is_whole or state.created.ephemeral:
        return []
    return await store.history.ask(state.id, partial(turns_of_log, loaded=True))


async def shown_turns(store: ThreadStore, state: ThreadState, *, loaded: bool) -> list[Turn]:
    """Return the turns of an answer: from memory if they are all there, else from the log."""
    if state.is_whole or state.created.ephemeral:
        return turns_of_state(state)
    return await store.history.ask(state.id, partial(turns_of_log, loaded=loaded))
