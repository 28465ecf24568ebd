"""The MCP server of the endpoint: the SDK's, with lists and results that leave as they are."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS

from app_server.clients.demo.hosted.tool import Call, Caller, HostedTool, JsonObject

logger = logging.getLogger(__name__)

RESOURCE_NOT_FOUND = -32002
SKILL = "mcp/skill"
"""The type of a resource that is a skill."""

_CAPABILITIES: JsonObject = {"tools": {}, "resources": {}}

Context: TypeAlias = ServerRequestContext[Any]


class HostedServer:
    """What the MCP server answers; an error says nothing of what went wrong inside."""

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
        if ctx.method == "initialize":
            hello = await call_next(ctx)
            assert isinstance(hello, dict)
            return {**hello, "capabilities": _CAPABILITIES}
        method = self._methods.get(ctx.method)
        if method is None or ctx.request_id is None:
            return await call_next(ctx)
        try:
            return await method(ctx, dict(ctx.params or {}))
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
