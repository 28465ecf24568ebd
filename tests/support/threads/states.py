"""The state of a thread, as tests compare it."""

from typing import Any

from app_server.threads.log.state import ThreadState


def visible(state: ThreadState) -> Any:
    """Return what a client and the model see of a thread."""
    turns = [(one.id, one.status, list(one.items)) for one in state.turns]
    return turns, state.history, state.preview
