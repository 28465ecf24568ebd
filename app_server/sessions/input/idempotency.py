"""Input that its client named is accepted once. Source: docs/wire.md, "Sending again"."""

from app_server.threads.log.state.thread import ThreadState
from protocol.rollout import InputAccepted, Record


class InputIdTaken(Exception):
    """Another input was accepted under this name."""

    def __init__(self, client_id: str, turn_id: str) -> None:
        super().__init__(client_id)
        self.client_id = client_id
        self.turn_id = turn_id


def turn_that_took(state: ThreadState, client_id: str | None, digest: str | None) -> str | None:
    """Return the turn that took this input before; None for new input, or without a name.

    Raises:
        InputIdTaken: another input has the name.
    """
    accepted = state.accepted.find(client_id)
    if client_id is None or accepted is None or digest is None:
        return None
    if accepted.digest != digest:
        raise InputIdTaken(client_id, accepted.turn_id)
    return accepted.turn_id


def name_records(
    client_id: str | None, digest: str | None, turn_id: str, at_ms: int
) -> list[Record]:
    """Give what the log has to say of named input; nothing without a name."""
    if client_id is None or digest is None:
        return []
    return [InputAccepted(at_ms=at_ms, client_id=client_id, digest=digest, turn_id=turn_id)]
