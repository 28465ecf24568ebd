"""How a set's tools are declared to the Responses API: one namespace a server.

Source: docs/mcp.md, "Tools and the model".
"""

from itertools import groupby

from app_server.mcp.connections import Tool, ToolTable
from app_server.mcp.schema import tool_parameters
from protocol.model import JsonObject

MAX_DESCRIPTION_BYTES = 4096


def declare(table: ToolTable) -> list[JsonObject]:
    """Declare every tool, in the order of raw names."""
    return [
        {
            "type": "namespace",
            "name": namespace,
            "description": _describe(table, namespace),
            "tools": [_function(tool) for tool in tools],
        }
        for namespace, tools in groupby(table.tools, key=lambda tool: tool.visible.namespace)
    ]


def _describe(table: ToolTable, namespace: str) -> str:
    text = table.instructions.get(namespace) or f"Tools in the {namespace} namespace."
    encoded = text.encode()
    if len(encoded) <= MAX_DESCRIPTION_BYTES:
        return text
    return encoded[:MAX_DESCRIPTION_BYTES].decode(errors="ignore") + "… [truncated]"


def _function(tool: Tool) -> JsonObject:
    description = tool.definition.get("description")
    return {
        "type": "function",
        "name": tool.visible.name,
        "description": description if isinstance(description, str) else "",
        "strict": False,
        "parameters": tool_parameters(tool.definition.get("inputSchema")),
    }


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
