"""A pipe of whole messages between two ends in one process."""

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

MAX_WAITING = 16
"""Messages in each direction; the next `send` waits."""


class PipeEnd:
    """One end; a MessageStream. Closing either end ends both, after what was sent is read."""

    def __init__(
        self,
        incoming: MemoryObjectReceiveStream[str],
        outgoing: MemoryObjectSendStream[str],
        from_peer: MemoryObjectSendStream[str],
    ) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._from_peer = from_peer

    async def receive(self) -> str:
        """Return the next message.

        Raises:
            anyio.EndOfStream: an end was closed, and nothing is left to read.
        """
        try:
            return await self._incoming.receive()
        except anyio.ClosedResourceError as exc:
            raise anyio.EndOfStream from exc

    async def send(self, *texts: str) -> None:
        """Send messages, in their order.

        Raises:
            anyio.BrokenResourceError: an end was closed.
        """
        try:
            for text in texts:
                await self._outgoing.send(text)
        except anyio.ClosedResourceError as exc:
            raise anyio.BrokenResourceError from exc

    async def aclose(self, code: int = 1000, reason: str = "") -> None:
        """Close the pipe: the other end may still read what was sent to it."""
        self._outgoing.close()
        # Ends a `receive` of our own that waits.
        self._from_peer.close()
        self._incoming.close()


def open_pipe() -> tuple[PipeEnd, PipeEnd]:
    """Make a pipe; gives both ends, each of which has to be closed."""
    to_left, from_right = anyio.create_memory_object_stream[str](MAX_WAITING)
    to_right, from_left = anyio.create_memory_object_stream[str](MAX_WAITING)
    return PipeEnd(from_right, to_right, to_left), PipeEnd(from_left, to_left, to_right)
