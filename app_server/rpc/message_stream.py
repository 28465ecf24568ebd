"""Message stream of a connection, as a protocol, and the bounds of one connection.

Light: listeners open, and have their bounds, before what holds conversations is loaded.
"""

from dataclasses import dataclass, field
from typing import Protocol

import anyio


class ClientGone(anyio.EndOfStream):
    """The client has not only finished sending: nothing reaches it any more."""


class MessageStream(Protocol):
    """A pipe of whole messages to one client."""

    async def receive(self) -> str:
        """Return the next message.

        Raises:
            ClientGone: nobody is there any more.
            anyio.EndOfStream: the client has finished sending, or has gone.
        """

    async def send(self, *texts: str) -> None:
        """Send messages, in their order and in one piece; returns when the pipe has taken them.

        Raises:
            anyio.BrokenResourceError: the client has gone.
        """

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        """Close the pipe. `code` and `reason` are WebSocket's; other pipes ignore them."""


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    """Bounds of the queue of messages to one client."""

    merge_above: int = 256
    """Messages; beyond it deltas of one item are merged and the client's requests are not read."""
    max_messages: int = 8192
    max_chars: int = 16 * 1024 * 1024
    """Characters of all waiting messages together, without large answers."""
    max_large_chars: int = 128 * 1024 * 1024
    """Characters of all waiting large answers together; the next one is not queued before."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds of one connection."""

    max_in_flight: int = 256
    """Requests being worked on; one more is answered -32001."""
    max_in_flight_chars: int = 128 * 1024 * 1024
    """Of the texts of these requests together; one that comes on top is answered -32001."""
    finish_s: float = 5.0
    """Seconds for requests after the client has finished sending, and for each write after that."""
    gather_s: float = 0.005
    """Seconds after a delta for another node's client, in which more are gathered for one write."""
    outbox: OutboxLimits = field(default_factory=OutboxLimits)
