"""MCP server of a route: the SDK answers the handshake, this module all else.

Answers leave as they are. The SDK's own handlers would drop what their version of MCP does not
know, and refuse content that it does not; a middleware that answers is past that.
Source: docs/apps.md, "Local routes".
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, TypeAlias

import anyio
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.exceptions import MCPError
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError
from starlette.types import Message, Receive, Scope, Send

from app_server.apps.inventory.annotations import ENVELOPE
from app_server.apps.routes.backing import Backing
from app_server.apps.routes.handshakes import RESOURCES_HANDSHAKE, SANDBOX_STATE, RouteHandshake
from app_server.apps.routes.http import values_of
from app_server.apps.routes.session import LocalSession
from app_server.mcp_wire.errors import PeerError
from app_server.mcp_wire.held_calls import AGAIN, HeldCall, HeldCalls
from app_server.mcp_wire.revisions import (
    CAPABILITIES_KEY,
    META,
    NOT_CACHED,
    STATELESS,
    asks_for_input,
    stamped,
)
from protocol.jsonrpc.errors import INTERNAL_ERROR, INVALID_PARAMS
from protocol.model import Json, JsonObject
from protocol.server.lifecycle import PROTOCOL_VERSION

logger = logging.getLogger(__name__)

IDLE_S = 600.0
"""A session without a stream and without a request is ended after this long."""

_SESSION = b"mcp-session-id"
_VERSION = b"mcp-protocol-version"
_HANDSHAKES = frozenset(version.encode() for version in HANDSHAKE_PROTOCOL_VERSIONS)

RESOURCE_NOT_FOUND = -32002
"""Code in revisions with sessions; without them it is -32602."""

CALL_ID = "codex/toolCallId"

PRIVATE = (ENVELOPE, CALL_ID, SANDBOX_STATE, "codex/sandbox-state")
"""Keys of a client's `_meta` that stay here; the last is an older name of the sandbox state."""

Context: TypeAlias = ServerRequestContext[Any]
Method: TypeAlias = Callable[[Context, JsonObject, HeldCall | None], Awaitable[JsonObject]]
"""Answers one request; one of a client without sessions is asked by what it holds."""

MAY_ASK = ("tools/call", "resources/read")
"""Methods whose calls the endpoint may ask something about."""


class RouteApp:
    """The MCP server of one path, one handler for each session; answers are plain JSON.

    What the server asks travels on the stream that a session opens with GET: an answer in JSON has
    no room for it. `json_answers=False` is the slower way, for those who cannot do without.
    Requests of a revision without sessions have a way of their own: what comes before the answer
    needs a stream of events there, and an answer alone is JSON all the same.
    """

    def __init__(
        self, server: "LocalServer", backing: Backing, *, json_answers: bool = True
    ) -> None:
        self._server = server
        self._sessions = StreamableHTTPSessionManager(
            server.sdk,
            json_response=json_answers,
            session_idle_timeout=IDLE_S,
            max_request_body_size=backing.bounds.request_bytes,
            max_sessions=backing.bounds.sessions,
        )
        self._stateless = StreamableHTTPSessionManager(
            server.sdk, max_request_body_size=backing.bounds.request_bytes
        )
        self._streams = backing.streams

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Answer requests while the context lasts; once only."""
        async with (
            self._sessions.run(),
            self._stateless.run(),
            anyio.create_task_group() as tasks,
        ):
            self._server.held = HeldCalls(tasks)
            yield
            tasks.cancel_scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        version = values_of(scope, _VERSION)
        if version and version[-1] not in _HANDSHAKES:
            # Blanks around a value are no part of it, and headers are compared with the body.
            headers = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
            scope = {**scope, "headers": headers}
            await self._stateless.handle_request(scope, receive, send)
        elif scope["method"] == "GET":
            await self._listen(scope, receive, send)
        else:
            await self._sessions.handle_request(scope, receive, send)

    async def _listen(self, scope: Scope, receive: Receive, send: Send) -> None:
        session_id = b"".join(values_of(scope, _SESSION)[:1]).decode("latin-1")
        is_open = False

        async def watch(message: Message) -> None:
            nonlocal is_open
            await send(message)
            if message["type"] == "http.response.start" and message["status"] == 200:
                is_open = True
                self._streams.opened(session_id)

        try:
            await self._sessions.handle_request(scope, receive, watch)
        finally:
            if is_open:
                self._streams.closed(session_id)


class LocalServer:
    """One MCP server: its handshake, and its methods by name."""

    def __init__(
        self,
        handshake: RouteHandshake,
        backing: Backing,
        methods: Mapping[str, Method],
        schema_of: Callable[[str], Json] | None = None,
    ) -> None:
        """Make a server; `schema_of` returns the input schema of a listed tool, None without one.

        Headers of a call are compared with the arguments that the schema marks for that.
        """
        self.name = handshake.name
        self.backing = backing
        self.held: HeldCalls | None = None
        """Calls of clients without sessions, once it is served."""
        self._capabilities = handshake.capabilities
        self._methods = methods
        self.sdk: Server[Any] = Server(
            handshake.name,
            version=PROTOCOL_VERSION,
            title=handshake.title,
            instructions=handshake.instructions,
            get_tool_input_schema=schema_of,
        )
        self.sdk.middleware[:] = [self._answer]

    async def _answer(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        if ctx.request_id is None:
            return await call_next(ctx)
        try:
            with self.backing.running.work():
                self.backing.check()
                return await self._serve(ctx, call_next)
        except PeerError as exc:
            is_stateless = ctx.protocol_version == STATELESS
            code = INVALID_PARAMS if is_stateless and exc.code == RESOURCE_NOT_FOUND else exc.code
            raise MCPError(code, exc.message, exc.data) from exc
        except (MCPError, ValidationError):
            raise
        except Exception:
            # The SDK would tell the client what the exception says.
            logger.exception("%s failed", ctx.method)
            raise MCPError(INTERNAL_ERROR, "Internal error") from None

    async def _serve(self, context: Context, call_next: CallNext) -> HandlerResult:
        if context.method in ("initialize", "server/discover"):
            hello = await call_next(context)
            assert isinstance(hello, dict)
            return {**hello, "capabilities": self._capabilities}
        method = self._methods.get(context.method)
        if method is None:
            return await call_next(context)
        params = dict(context.params or {})
        if context.protocol_version != STATELESS:
            return await method(context, params, None)
        meta = meta_of(params)
        capabilities = meta.get(CAPABILITIES_KEY)
        # What only says who makes the request ends here.
        params["_meta"] = {key: meta[key] for key in meta if not key.startswith(META)}
        if context.method not in MAY_ASK:
            found = await method(context, params, None)
            return stamped({**found, **NOT_CACHED}, self.sdk.server_info_stamp)
        assert self.held is not None, "a route is served while its application runs"
        work = partial(self._work, method, context, params)
        found = await self.held.call(params, capabilities, work)
        if context.method == "resources/read" and not asks_for_input(found):
            found = {**found, **NOT_CACHED}
        return stamped(found, self.sdk.server_info_stamp)

    async def _work(
        self, method: Method, context: Context, params: JsonObject, held: HeldCall
    ) -> JsonObject:
        with self.backing.running.work():
            try:
                asked = {key: params[key] for key in params if key not in AGAIN}
                return await method(context, asked, held)
            except MCPError as exc:
                raise PeerError(exc.error.code, exc.error.message, exc.error.data) from exc

    async def forward(
        self, context: Context, params: JsonObject, held: HeldCall | None
    ) -> JsonObject:
        """Ask the endpoint the same, in the session's turn, and return its answer as it is.

        Raises:
            MCPError, PeerError
        """
        meta = public_part(meta_of(params))
        session = LocalSession.of(context, self.name, self.backing, held)
        async with session.call() as upstream:
            await self.backing.settle()
            return await upstream.request(
                context.method,
                {**params, "_meta": meta} if "_meta" in params else params,
                on_progress=session.progress_of(context, meta.get("progressToken")),
            )


def meta_of(params: JsonObject) -> JsonObject:
    """Return a copy of a request's `_meta`; empty when it has none.

    Raises:
        MCPError: -32602, it is no object.
    """
    meta = params.get("_meta")
    if meta is not None and not isinstance(meta, dict):
        raise MCPError(INVALID_PARAMS, "_meta must be an object")
    return dict(meta or {})


def public_part(meta: JsonObject) -> JsonObject:
    """Return the part of a client's `_meta` for the endpoint."""
    return {key: value for key, value in meta.items() if key not in PRIVATE}


def text_of(params: JsonObject, member: str) -> str:
    """Return a member that must be a text.

    Raises:
        MCPError: -32602, it is not.
    """
    value = params.get(member)
    if not isinstance(value, str):
        raise MCPError(INVALID_PARAMS, f"{member} must be a string")
    return value


def no_list(member: str) -> Method:
    """Return a method whose list is empty."""

    async def empty(context: Context, params: JsonObject, held: HeldCall | None) -> JsonObject:
        return {member: []}

    return empty


def resource_server(backing: Backing) -> LocalServer:
    """Make the server that has the resources of all apps, and no tool.

    Its lists and reads are the endpoint's, cursors and errors included.
    """

    async def forward(context: Context, params: JsonObject, held: HeldCall | None) -> JsonObject:
        return await server.forward(context, params, held)

    server = LocalServer(
        RESOURCES_HANDSHAKE,
        backing,
        {
            "resources/list": forward,
            "resources/templates/list": forward,
            "resources/read": forward,
        },
    )
    return server
