"""Hosted endpoint on a loopback port: authentication and routes.

Everything below `/backend-api` wants the account's token.
"""

import hmac
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeAlias

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from app_server.clients.demo.hosted.files import FileStore, read_json
from app_server.clients.demo.hosted.tools import (
    DAY_URI,
    Call,
    Caller,
    HostedConnector,
    HostedTool,
    JsonObject,
    Mail,
    calendar,
    drive,
    survey,
)
from app_server.mcp_wire.revisions import NOT_CACHED, STATELESS, stamped
from app_server.runtime.http.listening import HOST
from app_server.runtime.http.loopback_server import serve_on_loopback

logger = logging.getLogger(__name__)

RESOURCE_NOT_FOUND = -32002
SKILL = "mcp/skill"
"""The type of a resource that is a skill."""

_CAPABILITIES: JsonObject = {"tools": {}, "resources": {}}

Context: TypeAlias = ServerRequestContext[Any]


class HostedServer:
    """MCP server of the endpoint; its errors show no internals."""

    def __init__(
        self,
        tools: Callable[[], Sequence[HostedTool]],
        resources: Mapping[str, JsonObject],
        on_list: Callable[[], None],
    ) -> None:
        """Take the tools, and resources by URI; `on_list` is called when tools are listed."""
        self._tools = tools
        self._resources = resources
        self._on_list = on_list
        self.page = 100
        """Tools on one page of the list."""
        self.sdk: Server[Any] = Server("hosted-apps-demo", version="1")
        self.sdk.middleware[:] = [self._answer]
        self._methods: dict[str, Callable[[Context, JsonObject], Awaitable[JsonObject]]] = {
            "tools/list": self._list,
            "tools/call": self._call,
            "resources/list": self._list_resources,
            "resources/templates/list": self._list_templates,
            "resources/read": self._read,
        }

    async def _answer(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.method in ("initialize", "server/discover"):
            hello = await call_next(ctx)
            assert isinstance(hello, dict)
            return {**hello, "capabilities": _CAPABILITIES}
        method = self._methods.get(ctx.method)
        if method is None or ctx.request_id is None:
            return await call_next(ctx)
        try:
            result = await method(ctx, dict(ctx.params or {}))
            if ctx.protocol_version != STATELESS:
                return result
            kept = {} if ctx.method == "tools/call" else NOT_CACHED
            return stamped({**result, **kept}, self.sdk.server_info_stamp)
        except MCPError:
            raise
        except Exception:
            logger.exception("%s failed", ctx.method)
            raise MCPError(INTERNAL_ERROR, "Internal error") from None

    async def _list(self, context: Context, params: JsonObject) -> JsonObject:
        cursor = params.get("cursor") or "0"
        if not isinstance(cursor, str) or not cursor.isdecimal():
            raise MCPError(INVALID_PARAMS, "unknown cursor")
        start, end = int(cursor), int(cursor) + self.page
        if start == 0:
            self._on_list()
        tools = self._tools()
        following = {"nextCursor": str(end)} if end < len(tools) else {}
        return {"tools": [tool.definition for tool in tools[start:end]], **following}

    async def _call(self, context: Context, params: JsonObject) -> JsonObject:
        named = (tool for tool in self._tools() if tool.definition["name"] == params.get("name"))
        tool = next(named, None)
        if tool is None:
            raise MCPError(INVALID_PARAMS, "unknown tool")
        arguments, meta = params.get("arguments") or {}, params.get("_meta") or {}
        if not isinstance(arguments, dict) or not isinstance(meta, dict):
            raise MCPError(INVALID_PARAMS, "arguments and _meta must be objects")
        return await tool.run(Call(arguments, meta, Caller(context)))

    async def _list_resources(self, context: Context, params: JsonObject) -> JsonObject:
        # A skill is not read itself, only its files: all there is of it is in the list.
        skills = [one for one in self._resources.values() if one.get("mimeType") == SKILL]
        files = [uri for uri, one in self._resources.items() if one.get("mimeType") != SKILL]
        return {"resources": [*({"uri": uri, "name": uri} for uri in files), *skills]}

    async def _list_templates(self, context: Context, params: JsonObject) -> JsonObject:
        return {"resourceTemplates": []}

    async def _read(self, context: Context, params: JsonObject) -> JsonObject:
        found = self._resources.get(str(params.get("uri")))
        if found is None:
            raise MCPError(RESOURCE_NOT_FOUND, "Resource not found")
        return {"contents": [found]}


PAGE = 50
"""Apps on one page of the directory."""


class Directory:
    """Directory of all apps, also of ones that the account cannot use."""

    def __init__(self, connectors: Sequence[HostedConnector]) -> None:
        """Take the apps of the account, a list that may change."""
        self._connectors = connectors
        self.others: list[JsonObject] = [
            {"id": "demo_notes", "name": "Notes", "description": "An app that is not linked."}
        ]
        """Entries of apps that the account cannot use yet."""
        self.page = PAGE
        self.settings: JsonObject = {"beta_settings": {"plugins": True}}
        """Of the account's workspace."""

    def routes(self, api: str) -> list[Route]:
        """Return the routes below a path."""
        listing = f"{api}/connectors/directory"
        return [
            Route(f"{listing}/list", self._list, methods=["GET"]),
            Route(f"{listing}/list_workspace", self._list_workspace, methods=["GET"]),
            Route(f"{api}/ps/apps/batch", self._batch, methods=["POST"]),
            Route(f"{api}/accounts/{{id}}/settings", self._settings, methods=["GET"]),
        ]

    def _entries(self) -> list[JsonObject]:
        known = [
            {"id": one.id, "name": one.name, "description": one.description}
            for one in self._connectors
        ]
        return known + self.others

    async def _list(self, request: Request) -> Response:
        token = request.query_params.get("token", "0")
        start = int(token) if token.isdecimal() else 0
        entries = self._entries()
        end = start + self.page
        following = str(end) if end < len(entries) else None
        return JSONResponse({"apps": entries[start:end], "next_token": following})

    async def _list_workspace(self, request: Request) -> Response:
        return JSONResponse({"apps": [], "next_token": None})

    async def _batch(self, request: Request) -> Response:
        body = await read_json(request)
        ids = body.get("app_ids") if isinstance(body, dict) else None
        if not isinstance(ids, list):
            return JSONResponse({"detail": "app_ids is missing"}, 400)
        tools = {one.id: one.tools for one in self._connectors}
        found = [{**entry, "tools": None} for entry in self._entries() if entry["id"] in ids]
        if body.get("include_tools") is True:
            for entry in found:
                entry["tools"] = [_summary(tool) for tool in tools.get(entry["id"], ())]
        return JSONResponse({"apps": found})

    async def _settings(self, request: Request) -> Response:
        return JSONResponse(self.settings)


def _summary(tool: HostedTool) -> dict[str, Any]:
    definition = tool.definition
    return {
        "name": definition["name"],
        "title": definition.get("title"),
        "description": definition.get("description"),
        "is_enabled": True,
        "disabled_reason": None,
        "is_read_only": (definition.get("annotations") or {}).get("readOnlyHint") is True,
    }


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
        """Take the apps of the account; those of the demo by default."""
        self.origin = ""
        """Scheme, address and port, once it is served."""
        self.token = SecretStr(secrets.token_urlsafe(32))
        self.account_id = ACCOUNT_ID
        self.files = FileStore()
        self.mail = Mail()
        if connectors is None:
            connectors = (calendar(), drive(self.files), self.mail.connector(), survey())
        self.connectors = list(connectors)
        self.resources: dict[str, JsonObject] = {DAY_URI: _DAY}
        self.directory = Directory(self.connectors)
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
        """Value for `chatgpt_base_url`."""
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
            self.origin = self.files.base_url = f"http://{HOST}:{port}"
            yield
