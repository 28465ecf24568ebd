"""Opens the addresses of a server."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import anyio.abc

from app_server.transport.address import Address, StdioAddress, TcpAddress, UnixAddress
from app_server.transport.websocket import (
    Conversation,
    NodeEntrance,
    OpenListener,
    WebSocketLimits,
    listen_tcp,
    listen_unix,
)

if TYPE_CHECKING:
    from app_server.transport.tokens import TokenGate

logger = logging.getLogger(__name__)

NOT_ACCEPTED = "socket.accept() out of system resource"
"""Message of asyncio up to a hundred times a second, each time with a traceback."""
TRIED_TOO_LATE = "Exception in callback BaseSelectorEventLoop._start_serving("
"""Start of asyncio's message, a second later, that the listener has no descriptor: it is closed."""
LOGGED_AGAIN_S = 10.0


@contextmanager
def accept_failures_logged_once() -> Iterator[None]:
    """While the context lasts, log once in LOGGED_AGAIN_S that no connection can be accepted."""
    loop = asyncio.get_running_loop()
    others = loop.get_exception_handler()
    logged_at = -math.inf

    def handle(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        nonlocal logged_at
        message, failure = str(context.get("message")), context.get("exception")
        if message.startswith(TRIED_TOO_LATE) and isinstance(failure, ValueError):
            return
        if message == NOT_ACCEPTED:
            if loop.time() - logged_at >= LOGGED_AGAIN_S:
                logged_at = loop.time()
                logger.error("no connection can be accepted: %s", failure)
        elif others is not None:
            others(loop, context)
        else:
            loop.default_exception_handler(context)

    loop.set_exception_handler(handle)
    try:
        yield
    finally:
        loop.set_exception_handler(others)


class StdioListener:
    """Stands among the listeners for stdin and stdout."""

    url = "stdio://"

    def stop_accepting(self) -> None:
        """Do nothing: stdio has one client."""


Listener = OpenListener | StdioListener


@dataclass(frozen=True, slots=True, kw_only=True)
class Listeners:
    """Opener of listeners, one address after another."""

    conversation: Conversation
    on_stdio: Callable[[], Coroutine[Any, Any, None]]
    """Talks to the client of stdin and stdout, in `tasks`."""
    limits: WebSocketLimits
    tasks: anyio.abc.TaskGroup
    tokens: "TokenGate | None"
    origins: frozenset[str]
    is_ready: Callable[[], bool]
    nodes: NodeEntrance | None = None

    @asynccontextmanager
    async def open(self, address: Address) -> AsyncIterator[Listener]:
        """Accept clients while the context lasts.

        Raises:
            OSError: the address cannot be bound.
        """
        match address:
            case TcpAddress():
                async with listen_tcp(
                    address,
                    self.conversation,
                    self.limits,
                    tokens=self.tokens,
                    origins=self.origins,
                    nodes=self.nodes,
                    is_ready=self.is_ready,
                ) as tcp:
                    yield tcp
            case UnixAddress():
                async with listen_unix(
                    address, self.conversation, self.limits, is_ready=self.is_ready
                ) as unix:
                    yield unix
            case StdioAddress():
                self.tasks.start_soon(self.on_stdio)
                yield StdioListener()
