"""`app-server mcp-server`: an app-server and its one client, which an MCP client steers.

Source: docs/mcp_server.md, "Start and end".
"""

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

from app_server import VERSION
from app_server.clients.mcp_front.app_client import AppClient
from app_server.clients.mcp_front.conversation import Conversation, FrontLimits
from app_server.rpc.message_stream import MessageStream
from app_server.runtime.exception_groups import only_member
from app_server.server.app import AppServer, serve_until_signalled
from app_server.server.settings import Settings
from app_server.transport.stdio import open_stdio

MAX_WAITING = 16
"""Messages in each direction; the next `send` waits."""


class PipeEnd:
    """One end of a pipe, as a MessageStream; closing either end ends both."""

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
        """Close the pipe: the other end may still read queued messages."""
        self._outgoing.close()
        # Ends a `receive` of our own that waits.
        self._from_peer.close()
        self._incoming.close()


def open_pipe() -> tuple[PipeEnd, PipeEnd]:
    """Make a pipe; gives both ends, each of which has to be closed."""
    to_left, from_right = anyio.create_memory_object_stream[str](MAX_WAITING)
    to_right, from_left = anyio.create_memory_object_stream[str](MAX_WAITING)
    return PipeEnd(from_right, to_right, to_left), PipeEnd(from_left, to_left, to_right)


async def offer(server: AppServer, stream: MessageStream, limits: FrontLimits) -> None:
    """Offer a server that is ready to the MCP client at the other end of `stream`.

    Returns when either of them has gone; the server is stopped.
    """
    near, far = open_pipe()

    async def open_older() -> MessageStream:
        other_near, other_far = open_pipe()
        tasks.start_soon(server.serve_client, other_far)
        return other_near

    conversation = Conversation(stream, AppClient(near), VERSION, limits, open_older)

    def stop() -> None:
        # The only client there will ever be has gone: nobody waits for its turns.
        server.stop()
        server.stop()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve_client, far)
        try:
            await conversation.run(stop)
        finally:
            await near.aclose()
            await stream.aclose()


async def serve(settings: Settings) -> None:
    """Serve the MCP client on stdin and stdout until it has finished, or SIGTERM or SIGINT.

    Raises:
        ConfigError, LoadFailed, OSError: the server cannot start, or stdin or stdout is closed.
    """
    server = AppServer(settings)
    stream = await open_stdio()
    ready = anyio.Event()

    async def offer_when_ready() -> None:
        await ready.wait()
        await offer(server, stream, FrontLimits())

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(offer_when_ready)
            await serve_until_signalled(server, lambda urls: ready.set())
    except BaseExceptionGroup as group:
        raise only_member(group) from None
