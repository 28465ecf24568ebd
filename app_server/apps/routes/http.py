"""The loopback port of a generation: who may come in, and to which route.

Knows: paths, headers, bearers.  Does not know: MCP beyond its headers, connectors, the endpoint.
In: HTTP requests.  Out: the same to the MCP server of their path, or a status without a body.
Source: docs/apps.md, "Local routes".
"""

import hmac
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import anyio
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import SecretStr
from starlette.types import Message, Receive, Scope, Send

from app_server.apps.routes.ports import AuthGuard
from app_server.http.loopback_server import HOST

MAX_SESSIONS = 1024
"""Open MCP sessions of one route; a client above that gets 503."""

IDLE_S = 600.0
"""A session without a stream and without a request is ended after this long."""

MAX_REQUEST_BYTES = 4 * 1024 * 1024
"""Of one request; a larger one gets 413."""

_SESSION = b"mcp-session-id"
_VERSION = b"mcp-protocol-version"
_HANDSHAKES = frozenset(version.encode() for version in HANDSHAKE_PROTOCOL_VERSIONS)


class Application(Protocol):
    """Where a request goes that may come in."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""


class OpenStreams:
    """Which sessions have a stream open, on which they get what the server asks.

    Source: MCP 2025-06-18, "Listening for Messages from the Server".
    """

    def __init__(self) -> None:
        self._open: set[str] = set()
        self._changed = anyio.Event()

    def opened(self, session_id: str) -> None:
        """Note that a session listens."""
        self._open.add(session_id)
        self._changed.set()
        self._changed = anyio.Event()

    def closed(self, session_id: str) -> None:
        """Note that it does not any more."""
        self._open.discard(session_id)

    async def wait_for(self, session_id: str) -> None:
        """Wait until a session listens; without a time limit."""
        while session_id not in self._open:
            await self._changed.wait()


class RouteApp:
    """The MCP server of one path, one handler for each session; answers are plain JSON.

    What the server asks travels on the stream that a session opens with GET: an answer in JSON has
    no room for it. `json_answers=False` is the slower way, for those who cannot do without.
    """

    def __init__(
        self, server: Server[Any], streams: OpenStreams, *, json_answers: bool = True
    ) -> None:
        self.sessions = StreamableHTTPSessionManager(
            server,
            json_response=json_answers,
            session_idle_timeout=IDLE_S,
            max_request_body_size=MAX_REQUEST_BYTES,
            max_sessions=MAX_SESSIONS,
        )
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request; 400 to a version of MCP that knows no sessions."""
        version = _values(scope, _VERSION)
        if version and version[-1] not in _HANDSHAKES:
            await _refuse(send, 400)
        elif scope["method"] == "GET":
            await self._listen(scope, receive, send)
        else:
            await self.sessions.handle_request(scope, receive, send)

    async def _listen(self, scope: Scope, receive: Receive, send: Send) -> None:
        session_id = b"".join(_values(scope, _SESSION)[:1]).decode("latin-1")
        is_open = False

        async def watch(message: Message) -> None:
            nonlocal is_open
            await send(message)
            if message["type"] == "http.response.start" and message["status"] == 200:
                is_open = True
                self._streams.opened(session_id)

        try:
            await self.sessions.handle_request(scope, receive, watch)
        finally:
            if is_open:
                self._streams.closed(session_id)


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
    """An ASGI application that lets in who may: no browser, and nobody without the right bearer."""

    def __init__(self, guard: AuthGuard) -> None:
        self._apps: dict[str, tuple[bytes, Application]] = {}
        self._guard = guard
        self._closed = False
        self._running = 0
        self._all_answered = anyio.Event()
        self.port = 0
        """Set once it is known; nobody gets in before."""

    def add(self, path: str, bearer: SecretStr, app: Application) -> None:
        """Let in at a path who has its bearer."""
        self._apps[path] = (b"Bearer " + bearer.get_secret_value().encode(), app)

    def close(self) -> None:
        """Let nobody in any more: 503."""
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
            await _refuse(send, app)
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
        if _values(scope, b"origin"):
            return 403
        if _values(scope, b"host") != [f"{HOST}:{self.port}".encode()]:
            return 403
        found = self._apps.get(scope["path"])
        if found is None:
            return 404
        expected, app = found
        given = _values(scope, b"authorization")
        if len(given) != 1 or not hmac.compare_digest(given[0], expected):
            return 401
        if not self._guard.holds():
            return 401
        return 503 if self._closed else app


def _values(scope: Scope, name: bytes) -> list[bytes]:
    return [value for key, value in scope["headers"] if key == name]


async def _refuse(send: Send, status: int) -> None:
    headers = [(b"content-length", b"0")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body"})
