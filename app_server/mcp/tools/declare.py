"""Declarations of a set's tools for the Responses API: one namespace a server.

Source: docs/mcp.md, "Tools and the model".
"""

from collections.abc import Sequence
from itertools import groupby
from weakref import WeakKeyDictionary

from app_server.mcp.bounds import MAX_FOUND_BYTES, json_bytes
from app_server.mcp.tools.search import DEFAULT_LIMIT
from app_server.mcp.tools.table import McpToolTable, Tool
from protocol.model import JsonObject

NOTE = "There are more tools in these namespaces; find them with tool_search."

_MARKS: JsonObject = {"defer_loading": True}
_MARK_BYTES = json_bytes(_MARKS) - len("{}") + len(",")

_DECLARED: WeakKeyDictionary[McpToolTable, list[JsonObject]] = WeakKeyDictionary()
"""Declarations by table, kept while it is in use: each model request of a turn needs them."""


def declare(table: McpToolTable) -> list[JsonObject]:
    """Declare every tool, in the order of raw names; not to be changed.

    For thousands of tools, the first time takes some ten ms: for worker threads.
    """
    made = _DECLARED.get(table)
    if made is None:
        made = _DECLARED[table] = _namespaces(table, table.tools, {})
    return made


def declared_functions(table: McpToolTable) -> list[JsonObject]:
    """Return the functions that `declare` has ready, none unless it was asked."""
    namespaces = _DECLARED.get(table, ())
    return [function for namespace in namespaces for function in namespace["tools"]]


def is_declared(table: McpToolTable) -> bool:
    """Whether `declare` has its answer ready."""
    return table in _DECLARED


def declare_found(table: McpToolTable, found: Sequence[Tool]) -> list[JsonObject]:
    """Declare what a search found, in the order of raw names, for a model that defers tools.

    `found` is best first; what MAX_FOUND_BYTES have no room for is passed over.
    """
    left = MAX_FOUND_BYTES
    fitting: list[Tool] = []
    namespaces: set[str] = set()
    for tool in found:
        size = tool.declared_bytes() + _MARK_BYTES
        if tool.visible.namespace not in namespaces:
            size += json_bytes(table.namespace(tool.visible.namespace, []))
        if size <= left:
            namespaces.add(tool.visible.namespace)
            left -= size
            fitting.append(tool)
    ordered = sorted(fitting, key=lambda tool: tool.raw)
    return _namespaces(table, ordered, _MARKS)


def deferred_lines(table: McpToolTable) -> list[str]:
    """Describe the namespaces of a table, a line each."""
    names = dict.fromkeys(tool.visible.namespace for tool in table.tools)
    return [f"- {name}: {table.description_of(name).splitlines()[0]}" for name in names]


def deferred_note(lines: Sequence[str]) -> str:
    """Declare which namespaces there are to search in; `lines` describe one each."""
    return "\n".join([NOTE, "<tools>", *lines, "</tools>"])


def _namespaces(table: McpToolTable, tools: Sequence[Tool], marks: JsonObject) -> list[JsonObject]:
    return [
        table.namespace(namespace, [tool.declaration() | marks for tool in members])
        for namespace, members in groupby(tools, key=lambda tool: tool.visible.namespace)
    ]


SEARCH_FUNCTION: JsonObject = {
    "type": "tool_search",
    "execution": "client",
    "description": "Find tools by words that say what they should do.",
    "parameters": {
        "type": "object",
        "properties": {
            "query": {"type": "string", "description": "Words of names and descriptions."},
            "limit": {
                "type": "number",
                "description": f"How many tools at most; {DEFAULT_LIMIT} if it is left out.",
            },
        },
        "required": ["query"],
        "additionalProperties": False,
    },
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
