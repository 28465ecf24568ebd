"""Functions with which a model lists and reads the resources of a thread's MCP servers.

Source: docs/mcp.md, "Tools and the model".
"""

import time
from collections.abc import Sequence

from app_server.mcp.tools.call_contents import bounded_result, cut_middle
from app_server.mcp.tools.declare import RESOURCE_FUNCTIONS
from app_server.mcp.tools.resources import RESOURCE_FUNCTION_NAMES, call_resource_function
from app_server.mcp_wire.errors import McpError
from app_server.models.catalogue.features import ModelFeatures
from app_server.turns.context import ThreadContext
from app_server.turns.slot import RunningTurn
from app_server.turns.tools.call import RequestedCall
from app_server.turns.tools.table import TurnTool
from protocol.model import Json, JsonObject
from protocol.turns.items import McpToolCallError, McpToolCallResult, McpToolCallThreadItem

UNNAMED_SERVER = "codex"
"""Server of an item of these functions whose call named none; clients know it."""


class McpResources(TurnTool):
    """Lists and reads resources, where a thread has MCP servers."""

    def __init__(self, context: ThreadContext, turn: RunningTurn) -> None:
        self._context = context
        self._turn = turn
        self._servers = context.servers.live()

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare the functions, if there is a server."""
        return RESOURCE_FUNCTIONS if self._servers.servers else []

    def offers(self, call: RequestedCall) -> bool:
        """Whether it is one of the functions."""
        return (
            call.kind == "function"
            and call.namespace is None
            and call.name in RESOURCE_FUNCTION_NAMES
        )

    def may_overlap(self, call: RequestedCall) -> bool:
        """They only read."""
        return True

    async def run(self, call: RequestedCall) -> Json:
        """List or read, and return the text of it, cut to what the model reads."""
        arguments = call.arguments()
        named = arguments.get("server") if isinstance(arguments, dict) else None
        item = McpToolCallThreadItem(
            id=call.call_id,
            server=named if isinstance(named, str) else UNNAMED_SERVER,
            tool=call.name,
            status="inProgress",
            arguments=arguments,
        )
        recorder = self._turn.recorder
        recorder.started(item)
        started = time.perf_counter()
        try:
            text = await call_resource_function(self._servers, call.name, arguments)
            content = {"content": [{"type": "text", "text": text}]}
            item.status = "completed"
            item.result = McpToolCallResult(content=bounded_result(content)["content"])
        except McpError as exc:
            text = f"resources/{call.name} failed: {exc}"
            item.status = "failed"
            item.error = McpToolCallError(message=text)
        item.duration_ms = round((time.perf_counter() - started) * 1000)
        await recorder.completed(item)
        return cut_middle(text, self._context.settings.output_limit_bytes)
