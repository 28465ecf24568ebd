"""The three functions with which a model looks at resources; results are plain JSON text.

Source: docs/mcp.md, "Tools and the model".
"""

from app_server.mcp.connection import list_all
from app_server.mcp.errors import BadArguments
from app_server.mcp.servers.requests import list_or_nothing, read_resource
from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp.tools.call_contents import compact
from protocol.model import Json, JsonObject

_LISTS = {
    "list_mcp_resources": ("resources/list", "resources"),
    "list_mcp_resource_templates": ("resources/templates/list", "resourceTemplates"),
}
READ = "read_mcp_resource"

RESOURCE_FUNCTION_NAMES = frozenset({*_LISTS, READ})


async def call_resource_function(servers: ServerSet, name: str, arguments: Json) -> str:
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
        result = await read_resource(servers, server, uri, None)
        return compact({"server": server, "uri": uri, "contents": result.get("contents", [])})
    method, member = _LISTS[name]
    if server is not None:
        async with servers.lease(server) as connection:
            found, _ = await list_all(connection, method, member)
        return compact({"server": server, member: [{"server": server, **one} for one in found]})
    everything: list[JsonObject] = []
    for other in list(servers.servers):
        # A reload may have taken it away, or replaced it, while those before it were asked.
        current = servers.servers.get(other)
        if current is not None and current.status == "connected":
            found = await list_or_nothing(current, method, member)
            everything += [{"server": other, **one} for one in found]
    return compact({member: everything})


def _optional_text(arguments: JsonObject, key: str) -> str | None:
    value = arguments.get(key)
    if value is not None and not isinstance(value, str):
        raise BadArguments(f"{key} must be a string")
    return value
