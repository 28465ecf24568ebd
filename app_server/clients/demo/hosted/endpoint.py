"""The hosted endpoint on a loopback port: who is let in, and what is served where.

Everything below `/backend-api` wants the account's token.
"""

import hmac
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app_server.clients.demo.hosted.calendar import DAY_URI, calendar
from app_server.clients.demo.hosted.directory import Directory
from app_server.clients.demo.hosted.drive import drive
from app_server.clients.demo.hosted.files import FileStore
from app_server.clients.demo.hosted.mail import Mail
from app_server.clients.demo.hosted.mcp_server import HostedServer
from app_server.clients.demo.hosted.survey import survey
from app_server.clients.demo.hosted.tool import HostedConnector, HostedTool, JsonObject
from app_server.runtime.http.backlog import HOST
from app_server.runtime.http.loopback_server import serve_on_loopback

API = "/backend-api"
MCP_PATH = f"{API}/ps/mcp"

ACCOUNT_ID = "demo-account"

MAX_SESSIONS = 256
IDLE_S = 600.0
MAX_REQUEST_BYTES = 4 * 1024 * 1024

_DAY = {"uri": DAY_URI, "mimeType": "text/html", "text": "<h1>A day</h1>"}


class HostedEndpoint:
    """One account with its apps, an ASGI application."""

    def __init__(self, connectors: Sequence[HostedConnector] | None = None) -> None:
        """Take the apps of the account; those of the demo unless they are given."""
        self.origin = ""
        """Scheme, address and port, once it is served."""
        self.token = SecretStr(secrets.token_urlsafe(32))
        self.account_id = ACCOUNT_ID
        self.files = FileStore(lambda: self.origin)
        self.mail = Mail()
        if connectors is None:
            connectors = (calendar(), drive(self.files), self.mail.connector(), survey())
        self.connectors = list(connectors)
        self.resources: dict[str, JsonObject] = {DAY_URI: _DAY}
        self.directory = Directory(lambda: self.connectors)
        self.mcp = HostedServer(self.tools, self.resources, self.mail.tools_were_listed)
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
