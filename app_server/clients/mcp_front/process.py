"""`app-server mcp-server`: an app-server and its one client, which an MCP client steers.

Source: docs/mcp_server.md, "Start and end".
"""

import anyio

from app_server import VERSION
from app_server.clients.mcp_front.conversation import Conversation, FrontLimits
from app_server.rpc.in_process import AppClient, open_pipe
from app_server.rpc.message_stream import MessageStream
from app_server.runtime.exception_groups import only_member
from app_server.server.app import AppServer, serve_until_signalled
from app_server.server.settings import Settings
from app_server.transport.stdio import open_stdio


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
