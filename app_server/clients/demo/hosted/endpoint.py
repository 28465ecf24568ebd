"""The hosted endpoint on a loopback port: who is let in, and what is served where.

Everything below `/backend-api` wants the account's token.
"""

import hmac
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from app_server.clients.demo.hosted.calendar import DAY_URI, Calendar
from app_server.clients.demo.hosted.directory import Directory
from app_server.clients.demo.hosted.drive import drive
from app_server.clients.demo.hosted.files import FileStore
from app_server.clients.demo.hosted.mail import Mail
from app_server.clients.demo.hosted.mcp_server import HostedServer
from app_server.clients.demo.hosted.survey import survey
from app_server.clients.demo.hosted.tool import HostedConnector, HostedTool, JsonObject
from app_server.http.loopback_server import HOST, serve_on_loopback

API = "/backend-api"
MCP_PATH = f"{API}/ps/mcp"

ACCOUNT_ID = "demo-account"

MAX_SESSIONS = 256
IDLE_S = 600.0
MAX_REQUEST_BYTES = 4 * 1024 * 1024

_DAY = {"uri": DAY_URI, "mimeType": "text/html", "text": "<h1>A day</h1>"}


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request before it is looked at."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str] = field(repr=False)
    """Names are in lower case."""
    body: bytes = field(repr=False)
    """Empty unless it is JSON."""


Hook = Callable[[Arrival], Awaitable[Response | None]]
"""Sees every request first; may wait, and may answer in place of the endpoint."""


class HostedEndpoint:
    """One account with its apps, an ASGI application."""

    def __init__(
        self, connectors: Sequence[HostedConnector] | None = None, hook: Hook | None = None
    ) -> None:
        """Take the apps of the account; those of the demo unless they are given."""
        self.origin = ""
        """Scheme, address and port, once it is served."""
        self.token = SecretStr(secrets.token_urlsafe(32))
        self.account_id = ACCOUNT_ID
        self.files = FileStore(lambda: self.origin)
        self.mail = Mail()
        if connectors is None:
            connectors = (
                Calendar().connector(),
                drive(self.files),
                self.mail.connector(),
                survey(),
            )
        self.connectors = list(connectors)
        self.resources: dict[str, JsonObject] = {DAY_URI: _DAY}
        self.directory = Directory(lambda: self.connectors)
        self.mcp = HostedServer(self.tools, self.resources, self.mail.tools_were_listed)
        self._hook = hook
        # In streams of events, because a question belongs to the stream of the call that asks it.
        self._sessions = StreamableHTTPSessionManager(
            self.mcp.sdk,
            session_idle_timeout=IDLE_S,
            max_request_body_size=MAX_REQUEST_BYTES,
            max_sessions=MAX_SESSIONS,
        )
        self._pages = Starlette(routes=[*self.directory.routes(API), *self.files.routes(API)])

    @property
    def base_url(self) -> str:
        """What `chatgpt_base_url` has to be."""
        return f"{self.origin}{API}"

    def tools(self) -> list[HostedTool]:
        """Return the tools of all apps."""
        return [tool for connector in self.connectors for tool in connector.tools]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if self._hook is not None:
            receive, body = await _read_ahead(scope, receive)
            if (answer := await self._hook(_arrival(scope, body))) is not None:
                await answer(scope, receive, send)
                return
        path = scope["path"]
        if path.startswith(f"{API}/") and not self._knows(Request(scope)):
            await Response(status_code=401)(scope, receive, send)
        elif path == MCP_PATH:
            await self._sessions.handle_request(scope, receive, send)
        else:
            await self._pages(scope, receive, send)

    def _knows(self, request: Request) -> bool:
        given = request.headers.get("authorization", "")
        expected = f"Bearer {self.token.get_secret_value()}"
        account = request.headers.get("chatgpt-account-id", self.account_id)
        return hmac.compare_digest(given.encode(), expected.encode()) and account == self.account_id

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[None]:
        """Serve on a free port of this machine while the context lasts; once only.

        Raises:
            OSError: no port can be opened.
        """
        async with serve_on_loopback(self) as port, self._sessions.run():
            self.origin = f"http://{HOST}:{port}"
            yield


def _arrival(scope: Scope, body: bytes) -> Arrival:
    return Arrival(
        scope["method"],
        scope["path"],
        scope["query_string"].decode("latin-1"),
        {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]},
        body,
    )


async def _read_ahead(scope: Scope, receive: Receive) -> tuple[Receive, bytes]:
    """Read a JSON body, and return it with what receives it once more."""
    kind = dict(scope["headers"]).get(b"content-type", b"")
    if not kind.startswith(b"application/json"):
        return receive, b""
    messages: list[Message] = []
    body = b""
    while len(body) <= MAX_REQUEST_BYTES:
        message = await receive()
        messages.append(message)
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break

    async def again() -> Message:
        return messages.pop(0) if messages else await receive()

    return again, body
