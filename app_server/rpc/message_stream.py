"""Message stream of a connection, as a protocol; light, as listeners open before the rest loads."""

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
