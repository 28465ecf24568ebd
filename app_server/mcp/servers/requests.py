"""Requests to the servers of a thread: calls of tools, reads and lists of resources.

Source: docs/mcp.md, "Calls".
"""

import math
from contextlib import nullcontext

from app_server.mcp.connection import list_all
from app_server.mcp.errors import BadArguments, ToolDisabled
from app_server.mcp.measurements import measured_call
from app_server.mcp.servers.server import McpServer
from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp.tools.naming import RawName
from app_server.mcp_wire.errors import McpError, ProgressCallback, RequestTimedOut
from app_server.mcp_wire.json_rpc_client import Caller
from app_server.observability.telemetry.spans import span
from protocol.model import Json, JsonObject


async def call_tool(
    servers: ServerSet,
    raw: RawName,
    arguments: Json,
    meta: JsonObject,
    on_progress: ProgressCallback | None = None,
    turn_id: str | None = None,
) -> JsonObject:
    """Call a tool by its raw name and return the result as the server sent it.

    Cancelling notifies the server. The timeout counts the time in which no question of the server's
    is open; such a question names the turn.

    Raises:
        McpError: nobody of this name, not started, filtered out, bad arguments, timed out, ended,
            or a JSON-RPC error of the server's (PeerError).
    """
    config = servers.server(raw.server).config
    if not config.allows(raw.tool):
        raise ToolDisabled(raw.server, raw.tool)
    server = await servers.decided(raw.server)
    with server.lease() as connection:
        if arguments is not None and not isinstance(arguments, dict):
            raise BadArguments("MCP tool arguments must be a JSON object")
        params: JsonObject = {"name": raw.tool, "_meta": meta}
        if arguments is not None:
            params["arguments"] = arguments
        with (
            span(
                "mcp",
                f"tools/call {raw.tool}",
                mcp__method__name="tools/call",
                gen_ai__tool__name=raw.tool,
                appserver__mcp__server=raw.server,
            ) as work,
            measured_call(config, raw.tool),
        ):
            timeout_s, caller = server.config.tool_timeout_s, Caller(server, turn_id)
            with server.running_calls.run(turn_id, timeout_s):
                result = await connection.request(
                    "tools/call", params, on_progress=on_progress, caller=caller
                )
                if result.get("isError") is True:
                    work.fail("tool_error")
                return result
            work.fail("timeout")
            raise RequestTimedOut("tools/call", timeout_s)


async def list_of(
    server: McpServer, method: str, member: str, turn_id: str | None = None
) -> list[JsonObject]:
    """Return a whole list of a server whose start is decided; questions name the turn.

    Raises:
        McpError: the server does not give it.
    """
    # A question that names no call is not one of a list that a client asks for. Each page has a
    # timeout of its own.
    is_of_turn = turn_id is not None
    running = server.running_calls.run(turn_id, math.inf) if is_of_turn else nullcontext()
    with server.lease() as connection, running:
        found, _ = await list_all(connection, method, member, Caller(server, turn_id))
        return found


async def list_or_nothing(
    server: McpServer, method: str, member: str, turn_id: str | None = None
) -> list[JsonObject]:
    """Return what `list_of` does; nothing if the server does not give it."""
    try:
        return await list_of(server, method, member, turn_id)
    except McpError:
        return []


async def read_resource(
    servers: ServerSet, name: str, uri: str, meta: JsonObject | None, turn_id: str | None = None
) -> JsonObject:
    """Read one resource and return the result as the server sent it; see `call_tool`.

    Raises:
        McpError: see `call_tool`.
    """
    params: JsonObject = {"uri": uri} if meta is None else {"uri": uri, "_meta": meta}
    server = await servers.decided(name)
    with server.lease() as connection:
        timeout_s, caller = server.config.tool_timeout_s, Caller(server, turn_id)
        with server.running_calls.run(turn_id, timeout_s):
            return await connection.request("resources/read", params, caller=caller)
        raise RequestTimedOut("resources/read", timeout_s)
