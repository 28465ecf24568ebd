"""An MCP server of a generation: the SDK's for the handshake, ours for everything else.

Answers leave as they are. The SDK's own handlers would drop what their version of MCP does not
know, and refuse content that it does not; a middleware that answers is past that.
Source: docs/apps.md, "Local routes".
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS
from pydantic import ValidationError

from app_server.apps.inventory.annotations import ENVELOPE
from app_server.apps.routes.handshakes import RESOURCES_HANDSHAKE, SANDBOX_STATE, Handshake
from app_server.apps.routes.session import Backing, LocalSession
from app_server.mcp_wire.errors import PeerError
from protocol.model import JsonObject
from protocol.server.lifecycle import PROTOCOL_VERSION

logger = logging.getLogger(__name__)

RESOURCE_NOT_FOUND = -32002

CALL_ID = "codex/toolCallId"

PRIVATE = (ENVELOPE, CALL_ID, SANDBOX_STATE, "codex/sandbox-state")
"""What the endpoint does not get of a client's `_meta`; the last is an older name of the state."""

Context: TypeAlias = ServerRequestContext[Any]
Method: TypeAlias = Callable[[Context, JsonObject], Awaitable[JsonObject]]


class LocalServer:
    """One MCP server: its handshake, and its methods by name."""

    def __init__(
        self, handshake: Handshake, backing: Backing, methods: Mapping[str, Method]
    ) -> None:
        self.name = handshake.name
        self.backing = backing
        self._capabilities = handshake.capabilities
        self._methods = methods
        self.sdk: Server[Any] = Server(
            handshake.name,
            version=PROTOCOL_VERSION,
            title=handshake.title,
            instructions=handshake.instructions,
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
            raise MCPError(exc.code, exc.message, exc.data) from exc
        except (MCPError, ValidationError):
            raise
        except Exception:
            # The SDK would tell the client what the exception says.
            logger.exception("%s failed", ctx.method)
            raise MCPError(INTERNAL_ERROR, "Internal error") from None

    async def _serve(self, context: Context, call_next: CallNext) -> HandlerResult:
        if context.method == "initialize":
            hello = await call_next(context)
            assert isinstance(hello, dict)
            return {**hello, "capabilities": self._capabilities}
        method = self._methods.get(context.method)
        if method is None:
            return await call_next(context)
        return await method(context, dict(context.params or {}))

    async def forward(self, context: Context, params: JsonObject) -> JsonObject:
        """Ask the endpoint the same, in the session's turn, and return its answer as it is.

        Raises:
            MCPError, PeerError
        """
        meta = public_part(meta_of(params))
        session = LocalSession.of(context, self.name, self.backing)
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
    """Return of a client's `_meta` what the endpoint gets."""
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

    async def empty(context: Context, params: JsonObject) -> JsonObject:
        return {member: []}

    return empty


def resource_server(backing: Backing) -> LocalServer:
    """Make the server that has the resources of all apps, and no tool.

    Its lists and reads are the endpoint's, cursors and errors included.
    """

    async def forward(context: Context, params: JsonObject) -> JsonObject:
        return await server.forward(context, params)

    server = LocalServer(
        RESOURCES_HANDSHAKE,
        backing,
        {
            "tools/list": no_list("tools"),
            "resources/list": forward,
            "resources/templates/list": forward,
            "resources/read": forward,
        },
    )
    return server
