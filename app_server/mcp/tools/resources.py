"""The three functions with which a model looks at resources; results are plain JSON text.

Source: docs/mcp.md, "Tools and the model".
"""

from pydantic_core import to_json

from app_server.mcp.errors import BadArguments
from app_server.mcp.peer import list_all
from app_server.mcp.servers.calls import read_resource
from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp_wire.errors import McpError
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
        return _compact({"server": server, "uri": uri, "contents": result.get("contents", [])})
    method, member = _LISTS[name]
    if server is not None:
        found = await list_of_server(servers, server, method, member)
        return _compact({"server": server, member: found})
    everything: list[JsonObject] = []
    for other in list(servers.servers.values()):
        if other.status == "connected":
            everything += await _list_or_nothing(servers, other.config.name, method, member)
    return _compact({member: everything})


async def list_of_server(
    servers: ServerSet, server: str, method: str, member: str
) -> list[JsonObject]:
    """List one server's resources or templates, each with the server's name.

    Raises:
        McpError: the server cannot be asked.
    """
    async with servers.lease(server) as peer:
        found, _ = await list_all(peer, method, member)
    return [{"server": server, **element} for element in found]


async def _list_or_nothing(
    servers: ServerSet, server: str, method: str, member: str
) -> list[JsonObject]:
    try:
        return await list_of_server(servers, server, method, member)
    except McpError:
        return []


def _optional_text(arguments: JsonObject, key: str) -> str | None:
    value = arguments.get(key)
    if value is not None and not isinstance(value, str):
        raise BadArguments(f"{key} must be a string")
    return value


def _compact(value: Json) -> str:
    return to_json(value, inf_nan_mode="null").decode()
