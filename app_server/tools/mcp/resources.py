"""Functions with which a model lists and reads the resources of a thread's MCP servers.

Source: docs/mcp.md, "Tools and the model".
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from app_server.mcp.errors import BadArguments
from app_server.mcp.servers.requests import list_of, list_or_nothing, read_resource
from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp.tools.call_contents import bounded_result, compact
from app_server.mcp_wire.errors import McpError
from app_server.models.catalogue.models import ModelFeatures
from app_server.runtime.cut_text import cut_middle
from app_server.turns.context import ThreadContext
from app_server.turns.slot import RunningTurn
from app_server.turns.tools import RequestedCall, TurnTool
from protocol.model import Json, JsonObject
from protocol.turns.items import McpToolCallError, McpToolCallResult, McpToolCallThreadItem

UNNAMED_SERVER = "codex"
"""Server of an item of these functions whose call named none; clients know it."""

_LISTS = {
    "list_mcp_resources": ("resources/list", "resources"),
    "list_mcp_resource_templates": ("resources/templates/list", "resourceTemplates"),
}
READ = "read_mcp_resource"

RESOURCE_FUNCTION_NAMES = frozenset({*_LISTS, READ})


async def call_resource_function(
    servers: ServerSet, name: str, arguments: Json, turn_id: str | None = None
) -> str:
    """Call one of the three by its name.

    Raises:
        McpError: bad arguments, or the named server cannot be asked.
    """
    if arguments is not None and not isinstance(arguments, dict):
        raise BadArguments("arguments must be a JSON object")
    given: JsonObject = arguments or {}
    server = _optional_text(given, "server")
    if name == READ:
        uri = _optional_text(given, "uri")
        if server is None or uri is None:
            raise BadArguments("server and uri must be strings")
        result = await read_resource(servers, server, uri, None, turn_id)
        return compact({"server": server, "uri": uri, "contents": result.get("contents", [])})
    method, member = _LISTS[name]
    if server is not None:
        found = await list_of(await servers.decided(server), method, member, turn_id)
        return compact({"server": server, member: [{"server": server, **one} for one in found]})
    everything: list[JsonObject] = []
    for other in list(servers.servers):
        # A reload may have taken it away, or replaced it, while those before it were asked.
        current = servers.servers.get(other)
        if current is not None and current.status == "connected":
            found = await list_or_nothing(current, method, member, turn_id)
            everything += [{"server": other, **one} for one in found]
    return compact({member: everything})


def _optional_text(arguments: JsonObject, key: str) -> str | None:
    value = arguments.get(key)
    if value is not None and not isinstance(value, str):
        raise BadArguments(f"{key} must be a string")
    return value


_LIST_PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {
        "cursor": {"type": "string", "description": "From the page before; none for the first."},
        "server": {"type": "string", "description": "Only this MCP server; none for all."},
    },
    "additionalProperties": False,
}

_READ_PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {
        "server": {"type": "string", "description": "The MCP server that listed the resource."},
        "uri": {"type": "string", "description": "The URI of the resource, as it was listed."},
    },
    "required": ["server", "uri"],
    "additionalProperties": False,
}

RESOURCE_FUNCTIONS: list[JsonObject] = [
    {
        "type": "function",
        "name": name,
        "description": description,
        "strict": False,
        "parameters": parameters,
    }
    for name, description, parameters in (
        (
            "list_mcp_resources",
            "List what MCP servers offer to read: files, schemas, documents and the like.",
            _LIST_PARAMETERS,
        ),
        (
            "list_mcp_resource_templates",
            "List the patterns of URIs that MCP servers can resolve to something to read.",
            _LIST_PARAMETERS,
        ),
        ("read_mcp_resource", "Read one resource of an MCP server.", _READ_PARAMETERS),
    )
]


@dataclass(frozen=True, slots=True)
class McpResources(TurnTool):
    """Lists and reads resources, where a thread has MCP servers."""

    functions = RESOURCE_FUNCTION_NAMES

    context: ThreadContext
    turn: RunningTurn
    servers: ServerSet

    def declarations(self, model: ModelFeatures) -> Sequence[JsonObject]:
        """Declare the functions, if there is a server."""
        return RESOURCE_FUNCTIONS if self.servers.servers else []

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
        recorder = self.turn.recorder
        recorder.started(item)
        started = time.perf_counter()
        try:
            text = await call_resource_function(
                self.servers, call.name, arguments, recorder.turn_id
            )
            content = {"content": [{"type": "text", "text": text}]}
            item.status = "completed"
            item.result = McpToolCallResult(content=bounded_result(content)["content"])
        except McpError as exc:
            text = f"resources/{call.name} failed: {exc}"
            item.status = "failed"
            item.error = McpToolCallError(message=text)
        item.duration_ms = round((time.perf_counter() - started) * 1000)
        await recorder.completed(item)
        return cut_middle(text, self.context.settings.output_limit_bytes)
