"""ASGI server on a free loopback port.

Importing this module imports uvicorn and starlette, which takes a while: whoever needs it is
imported late.
Source: docs/architecture.md, "Life of a process".
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import anyio
import uvicorn

# uvicorn imports these by name when it begins to serve, on the event loop.
import uvicorn.lifespan.off
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from app_server.runtime.http.listening import ASKED_BACKLOG, lengthen_backlogs, open_port
from app_server.runtime.http.peer_user import refusal_of_stranger

SHUTDOWN_S = 1
"""For requests that still run when serving ends."""

PEER = "peer"
"""Key, in the ASGI state, of the task that checks a connection's peer."""

STRANGER_S = 1.0
"""For the request of another user, who is refused then."""

MAX_OPEN_TO_STRANGERS = 64
"""Connections of anybody with which those of other users are closed at once."""

KEEP_ALIVE_S = 60
"""A connection without a request is closed after this long."""


class _State(ServerState):
    """State that the connections of a server share."""

    is_over = False
    """Whether the server takes no more of them."""


class _Protocol(HttpToolsProtocol):
    """A connection that is looked at when it comes, so that no stranger has one open."""

    server_state: _State

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin; the state of an application is that of its connection here."""
        super().connection_made(transport)
        if self.server_state.is_over:
            transport.abort()
            return
        looking = self.loop.create_task(self._refusal(transport))
        self.app_state = {PEER: looking}

    async def _refusal(self, transport: asyncio.Transport) -> str | None:
        """Say why the other end is refused, which has a moment for the request to say it to."""
        refusal = await refusal_of_stranger(transport.get_extra_info("socket"))
        if refusal is not None and len(self.connections) > MAX_OPEN_TO_STRANGERS:
            transport.abort()
        elif refusal is not None:
            self.loop.call_later(STRANGER_S, transport.abort)
        return refusal


class _Application:
    """ASGI application for this user's clients, which may leave before the answer.

    uvicorn would log that as its failure.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with contextlib.suppress(ClientDisconnect):
            if refusal := await scope["state"].pop(PEER):
                await PlainTextResponse(refusal, 403, {"connection": "close"})(scope, receive, send)
            else:
                await self._app(scope, receive, send)


class _Server(uvicorn.Server):
    def __init__(self, app: ASGIApp, shutdown_s: int) -> None:
        # The interface is named because a bound method would be taken for an older one.
        super().__init__(
            uvicorn.Config(
                _Application(app),
                interface="asgi3",
                http=_Protocol,
                lifespan="off",
                ws="none",
                proxy_headers=False,
                access_log=False,
                log_config=None,
                server_header=False,
                date_header=False,
                timeout_keep_alive=KEEP_ALIVE_S,
                timeout_graceful_shutdown=shutdown_s,
                backlog=ASKED_BACKLOG,
            )
        )
        self.server_state: _State = _State()
        self.stop = anyio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept connections."""
        await super().startup(sockets)
        lengthen_backlogs(sockets or [])

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Shut down; uvicorn would leave connections open that are being accepted."""
        self.server_state.is_over = True
        # asyncio loses a socket that it has accepted when the port is closed before it has made a
        # connection of it, which takes one pass of the loop.
        loop = asyncio.get_running_loop()
        for listener in sockets or []:
            loop.remove_reader(listener)
        await asyncio.sleep(0)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the process that we are part of."""
        yield

    async def main_loop(self) -> None:
        """Wait until serving ends, without looking ten times a second whether it has."""
        await self.stop.wait()


@asynccontextmanager
async def serve_on_loopback(app: ASGIApp, *, shutdown_s: int = SHUTDOWN_S) -> AsyncIterator[int]:
    """Serve an application to processes of this user while the context lasts; gives the port.

    At its end the port is closed first; requests that run have `shutdown_s` seconds to end, also
    when the caller is cancelled.

    Raises:
        OSError: no port can be opened.
    """
    with open_port() as listener:
        async with serving(app, listener, shutdown_s=shutdown_s):
            yield listener.getsockname()[1]


@asynccontextmanager
async def serving(
    app: ASGIApp, listener: socket.socket, *, shutdown_s: int = SHUTDOWN_S
) -> AsyncIterator[None]:
    """Serve an application on an open port while the context lasts; see `serve_on_loopback`."""
    server = _Server(app, shutdown_s)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_serve, server, listener)
        try:
            yield
        finally:
            server.stop.set()


async def _serve(server: _Server, listener: socket.socket) -> None:
    # A cancelled server would leave its connections open.
    with anyio.CancelScope(shield=True):
        await server.serve([listener])
