"""Changing what is stored about a thread, loaded or not, and showing it afterwards."""

from collections.abc import Callable, Sequence

from app_server.handlers.errors import thread_failures
from app_server.handlers.services import Services
from app_server.handlers.threads.shown import shown_thread
from app_server.threads.failures import ThreadBusy
from app_server.threads.log.state import ThreadState
from protocol.jsonrpc.errors import RpcError, invalid_request
from protocol.log.rollout import Record
from protocol.threads.thread import Thread


async def change_thread(
    services: Services,
    thread_id: str,
    decide: Callable[[ThreadState], Sequence[Record]],
    *,
    missing: str | None = None,
    ephemeral: RpcError,
) -> tuple[ThreadState, Sequence[Record]]:
    """Add what `decide` makes of a thread's state; it is on disk when this returns.

    `missing` is the text for a thread that is not there, `ephemeral` the refusal for one that
    is in memory alone.

    Raises:
        RpcError: the thread cannot be changed, or `decide` refused.
    """

    def decide_for_stored(state: ThreadState) -> Sequence[Record]:
        if state.created.ephemeral:
            raise ephemeral
        return decide(state)

    with thread_failures(thread_id, missing):
        return await services.sessions.change(thread_id, decide_for_stored)


async def stored_state(
    services: Services, thread_id: str, missing: str | None = None
) -> ThreadState:
    """Return the state of a thread, loaded or not.

    Raises:
        RpcError: there is no such thread.
    """
    session = services.sessions.find(thread_id)
    if session is not None:
        return session.log.state
    with thread_failures(thread_id, missing):
        return await services.store.read(thread_id)


async def is_written_elsewhere(services: Services, thread_id: str) -> bool:
    """Whether another server writes a thread, so that a turn without an end may run there.

    Raises:
        OSError: the store cannot be asked.
    """
    if services.sessions.find(thread_id) is not None:
        return False
    try:
        await services.store.require_free(thread_id)
    except ThreadBusy:
        return True
    return False


def show_thread(services: Services, state: ThreadState) -> Thread:
    """Show a thread as it is now, without its turns."""
    return shown_thread(services.store, state, services.sessions.find(state.id))


def not_for_ephemeral(what: str, thread_id: str) -> RpcError:
    """Refuse a thread that is in memory alone."""
    return invalid_request(
        f"ephemeral thread does not support {what}: {thread_id}",
        "ephemeralThread",
        threadId=thread_id,
    )
