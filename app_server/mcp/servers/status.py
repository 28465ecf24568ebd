"""Reports on servers: status, tools and resources, and auth status.

Source: docs/mcp.md, "Status".
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import anyio

from app_server.mcp.auth_status import AuthProbe, AuthStatus
from app_server.mcp.bounds import MAX_DECLARED_BYTES
from app_server.mcp.catalog.config import ServerConfig
from app_server.mcp.errors import UnknownServer
from app_server.mcp.servers.requests import list_or_nothing
from app_server.mcp.servers.server import McpServer
from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp.tools.listing import Listing
from app_server.mcp.tools.table import McpToolTable
from protocol.model import JsonObject

logger = logging.getLogger(__name__)

NOT_SHOWN = (
    "its tools are not shown to the model: with them the tools of the thread would take more than "
    f"{MAX_DECLARED_BYTES} bytes of a model request"
)


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
    """Describe servers, in the order of `names`; asks all of them at the same time.

    What is removed from the set meanwhile is left out.
    """
    reports: dict[str, ServerReport] = {}

    async def describe(name: str) -> None:
        with suppress(UnknownServer):
            server = await servers.decided(name)
            reports[name] = await _describe(server, probe, resources=resources)

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(describe, name)
    return [reports[name] for name in names if name in reports]


def without_left_out(reports: Sequence[ServerReport], table: McpToolTable) -> list[ServerReport]:
    """Say of the servers of a thread whose tools the model is not shown, and why."""
    return [
        replace(entry, tools={}, tools_error=NOT_SHOWN)
        if entry.config.name in table.left_out
        else entry
        for entry in reports
    ]


async def _describe(server: McpServer, probe: AuthProbe, *, resources: bool) -> ServerReport:
    config, listing = server.config, server.listing or Listing()
    found: list[list[JsonObject]] = [[], []]
    auth_status: AuthStatus = "unknown"
    try:
        auth_status = await probe.status(server)
    except Exception:
        # One server that answers strangely must not take the others' rows along.
        logger.exception("MCP server %s: its sign-in cannot be looked at", config.name)
    if resources and server.status == "connected":
        capabilities = listing.capabilities
        if isinstance(capabilities, dict) and "resources" in capabilities:
            found = [
                await list_or_nothing(server, "resources/list", "resources"),
                await list_or_nothing(server, "resources/templates/list", "resourceTemplates"),
            ]
    return ServerReport(
        config=config,
        status=server.status,
        listing=listing,
        tools_error=_tools_error(server, listing),
        resources=found[0],
        resource_templates=found[1],
        auth_status=auth_status,
        tools={name: tool for name, tool in listing.tools.items() if config.allows(name)},
    )


def _tools_error(server: McpServer, listing: Listing) -> str | None:
    if server.config.enabled and not server.startable:
        return f"unknown environment `{server.config.environment_id}`"
    # A server that died later still has the list it gave.
    return str(server.failure) if server.failure is not None and not listing.tools else None
