"""Environments that clients added, as other servers of a store know them; the door to them.

Source: docs/environments.md, "Several servers".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class AddedEnvironment:
    """An exec server that a client added as an environment; nothing in it is a secret."""

    id: str
    url: str
    request_id: str | None = None
    """Sent as `X-Request-ID` at every connect."""
    connect_ms: int | None = None
    """For the connection and the handshake; None: the default."""


class AddedEnvironments(Protocol):
    """The environments that servers of a store share."""

    async def put(self, environment: AddedEnvironment) -> None:
        """Make an environment known to the other servers, in place of one with its id.

        Raises:
            OSError: it cannot be written; nothing was changed.
        """

    async def all(self) -> Sequence[AddedEnvironment]:
        """Return those that were added last, at most as many as a server takes.

        Raises:
            OSError: they cannot be read.
        """
