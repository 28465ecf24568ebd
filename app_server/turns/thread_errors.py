"""Errors with which a thread refuses requests; handlers translate them once."""

from typing import Literal

MAX_META_BYTES = 256 * 1024
"""Of all entries of `mcpMetaByServer` of a turn, as JSON without blanks."""


class NoActiveTurn(Exception):
    """No turn is running."""


class TurnIdMismatch(Exception):
    """Another turn is running than the caller believes."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(f"expected active turn id `{expected}` but found `{found}`")
        self.expected = expected
        self.found = found


class TurnNotSteerable(Exception):
    """The running turn takes no directions; `kind` says what it does."""

    def __init__(self, kind: Literal["compact", "review"]) -> None:
        super().__init__(f"cannot steer a {kind} turn")
        self.kind = kind


class EmptyInput(Exception):
    """A running turn was given nothing."""


class McpMetaTooLarge(Exception):
    """A turn's metadata for MCP servers would be larger than MAX_META_BYTES."""


class TurnActive(Exception):
    """A turn runs, or is about to."""


class SessionClosed(Exception):
    """The server is stopping."""


class SessionUnloading(SessionClosed):
    """The thread is leaving memory; the server goes on."""


class NotLoaded(Exception):
    """The thread is not in memory."""


class InputIdTaken(Exception):
    """Another input was accepted under this name; docs/wire.md, "Sending again".

    `facts` name what has it: `turnId`, or `queuedSubmissionId`.
    """

    def __init__(self, client_id: str, **facts: str) -> None:
        super().__init__(client_id)
        self.client_id = client_id
        self.facts = facts


class ThreadIdTaken(Exception):
    """The client chose an id under which another thread was started."""
