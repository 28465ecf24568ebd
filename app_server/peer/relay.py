"""Messages passed as they are between a pipe, such as stdin and stdout, and a server's WebSocket.

Light: an editor starts it and waits.
"""

from contextlib import suppress
from typing import Protocol

import anyio
from websockets.exceptions import ConnectionClosed

from app_server.peer.address import ServerAddress

MAX_FRAME_BYTES = 64 * 1024 * 1024
"""UTF-8 bytes of one message of the server."""


class MessagePipe(Protocol):
    """A pipe of whole messages, such as stdin and stdout; its end is `anyio.EndOfStream`."""

    async def receive(self) -> str:
        """Return the next message."""

    async def send(self, *texts: str) -> None:
        """Send messages; raises anyio.BrokenResourceError where nobody reads them."""


async def relay(address: ServerAddress, pipe: MessagePipe) -> bool:
    """Pass messages between a pipe and a server, as they are, until either has ended.

    Returns whether it was the pipe that ended. Neither is read faster than the other takes it.

    Raises:
        ValueError, OSError: see ServerAddress.opened.
    """
    async with address.opened(max_size=MAX_FRAME_BYTES) as socket:
        ended_here = True

        async def pass_on(tasks: anyio.CancelScope) -> None:
            nonlocal ended_here
            with suppress(anyio.BrokenResourceError, ConnectionClosed):
                while True:
                    text = await socket.recv(decode=True)
                    await pipe.send(text)
            ended_here = False
            tasks.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pass_on, tasks.cancel_scope)
            with suppress(anyio.EndOfStream, ConnectionClosed):
                while True:
                    await socket.send(await pipe.receive(), text=True)
            tasks.cancel_scope.cancel()
        return ended_here
