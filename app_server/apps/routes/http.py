"""Loopback port of a generation: bearer tokens and routing.

Knows: paths, headers, bearers.  Does not know: MCP beyond its headers, connectors, the endpoint.
In: HTTP requests.  Out: the same to the MCP server of their path, or a status without a body.
Source: docs/apps.md, "Local routes".
"""

import hmac
import logging
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import ModuleType
from typing import TYPE_CHECKING, Protocol

import anyio
from pydantic import SecretStr
from starlette.types import Receive, Scope, Send

from app_server.apps.routes.backing import AuthGuard
from app_server.runtime.http.listening import HOST, open_port
from app_server.runtime.loader import RETRY_FIRST_S, LoadFailed, load


class Application(Protocol):
    """The ASGI application behind the bearer check."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""


class LazyRouteApp:
    """Made for its first request: most routes have none, and each takes a ms."""

    def __init__(self, open_app: Callable[[], Awaitable[Application]]) -> None:
        self._open_app = open_app
        self._opening = anyio.Lock()
        self._app: Application | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        async with self._opening:
            if self._app is None:
                self._app = await self._open_app()
        await self._app(scope, receive, send)


class GuardedRoutes:
    """An ASGI application that refuses browsers and requests without the right bearer."""

    def __init__(self, guard: AuthGuard) -> None:
        self._apps: dict[str, tuple[bytes, Application]] = {}
        self._guard = guard
        self._closed = False
        self._running = 0
        self._all_answered = anyio.Event()
        self.port = 0
        """The TCP port, set once it is bound; 0 before, and every request is refused."""

    def add(self, path: str, bearer: SecretStr, app: Application) -> None:
        """Add a route that accepts its own bearer."""
        self._apps[path] = (b"Bearer " + bearer.get_secret_value().encode(), app)

    def close(self) -> None:
        """Refuse further requests with 503."""
        self._closed = True
        if not self._running:
            self._all_answered.set()

    def clear(self) -> None:
        """Forget the routes, once the port is closed."""
        self._apps.clear()

    async def wait_until_answered(self) -> None:
        """Wait, after `close`, until no request is left but streams."""
        await self._all_answered.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request and pass it on."""
        app = self._admit(scope)
        if isinstance(app, int):
            await refuse(send, app)
        elif scope["method"] == "GET":
            await app(scope, receive, send)
        else:
            self._running += 1
            try:
                await app(scope, receive, send)
            finally:
                self._running -= 1
                if self._closed and not self._running:
                    self._all_answered.set()

    def _admit(self, scope: Scope) -> Application | int:
        if values_of(scope, b"origin"):
            return 403
        if values_of(scope, b"host") != [f"{HOST}:{self.port}".encode()]:
            return 403
        found = self._apps.get(scope["path"])
        if found is None:
            return 404
        expected, app = found
        given = values_of(scope, b"authorization")
        if len(given) != 1 or not hmac.compare_digest(given[0], expected):
            return 401
        if not self._guard.holds():
            return 401
        return 503 if self._closed else app


def values_of(scope: Scope, name: bytes) -> list[bytes]:
    """Return the values of a header of a request."""
    return [value for key, value in scope["headers"] if key == name]


async def refuse(send: Send, status: int) -> None:
    """Answer a request with a status alone."""
    headers = [(b"content-length", b"0")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body"})


if TYPE_CHECKING:
    from starlette.types import ASGIApp

logger = logging.getLogger(__name__)


@asynccontextmanager
async def serve_when_wanted(app: "ASGIApp") -> AsyncIterator[int]:
    """Serve as `serve_on_loopback` does, from the first connection on; gives the port.

    Raises:
        OSError: no port can be opened.
    """
    with open_port() as listener:
        listener.setblocking(False)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_serve_when_wanted, app, listener)
            try:
                yield listener.getsockname()[1]
            finally:
                tasks.cancel_scope.cancel()


async def _serve_when_wanted(app: "ASGIApp", listener: socket.socket) -> None:
    while True:
        await anyio.wait_readable(listener)
        try:
            server = await load(_server)
        except LoadFailed as exc:
            # Whoever waits is tried again.
            logger.warning("a port of this machine cannot be served: %s", exc)
            await anyio.sleep(RETRY_FIRST_S)
            continue
        async with server.serving(app, listener):
            await anyio.sleep_forever()


def _server() -> ModuleType:
    from app_server.runtime.http import loopback_server

    return loopback_server
