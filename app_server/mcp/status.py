"""What there is to say of every server: how it is, what it offers, whether it wants a sign-in.

Source: docs/mcp.md, "Status".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import anyio

from app_server.mcp.auth_status import AuthProbe, AuthStatus
from app_server.mcp.config import LOCAL, ServerConfig
from app_server.mcp.connections import ServerSet
from app_server.mcp.errors import McpError
from app_server.mcp.listing import Listing
from app_server.mcp.peer import list_all
from app_server.mcp.server import McpServer
from protocol.model import JsonObject


@dataclass(frozen=True, slots=True)
class ServerReport:
    """One server, as configured and as it is now."""

    config: ServerConfig
    status: str
    listing: Listing
    tools_error: str | None = None
    resources: Sequence[JsonObject] = ()
    resource_templates: Sequence[JsonObject] = ()
    auth_status: AuthStatus = "unsupported"
    tools: dict[str, JsonObject] = field(default_factory=dict)
    """Raw name to tool, as listed, after the server's filters."""


async def report(
    servers: ServerSet, names: Sequence[str], probe: AuthProbe, *, resources: bool
) -> list[ServerReport]:
    """Describe servers, in the order of `names`; asks all of them at the same time."""
    reports: dict[str, ServerReport] = {}

    async def describe(name: str) -> None:
        reports[name] = await _describe(servers.servers[name], probe, resources=resources)

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(describe, name)
    return [reports[name] for name in names]


async def _describe(server: McpServer, probe: AuthProbe, *, resources: bool) -> ServerReport:
    await server.settled.wait()
    config = server.config
    found: list[list[JsonObject]] = [[], []]
    auth_status = await probe.status(server)
    if resources and server.status == "connected":
        capabilities = server.listing.capabilities
        if isinstance(capabilities, dict) and "resources" in capabilities:
            found = [
                await _list_or_nothing(server, "resources/list", "resources"),
                await _list_or_nothing(server, "resources/templates/list", "resourceTemplates"),
            ]
    return ServerReport(
        config=config,
        status=server.status,
        listing=server.listing,
        tools_error=_tools_error(server),
        resources=found[0],
        resource_templates=found[1],
        auth_status=auth_status,
        tools={name: tool for name, tool in server.listing.tools.items() if config.allows(name)},
    )


async def _list_or_nothing(server: McpServer, method: str, member: str) -> list[JsonObject]:
    try:
        found, _ = await list_all(await server.connected_peer(), method, member)
    except McpError:
        return []
    return found


def _tools_error(server: McpServer) -> str | None:
    if server.config.enabled and server.config.environment_id != LOCAL:
        return f"unknown environment `{server.config.environment_id}`"
    # A server that died later still has the list it gave.
    return str(server.failure) if server.failure is not None and not server.listing.tools else None
