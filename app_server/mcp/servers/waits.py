"""Waits before a model request: for starts of servers, and for lists that changed.

Source: docs/mcp.md, "Connections".
"""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass

import anyio
import anyio.to_thread

from app_server.mcp.bounds import ListTooLarge
from app_server.mcp.catalog.config import ServerConfig
from app_server.mcp.connection import list_all
from app_server.mcp.errors import RequiredServersFailed
from app_server.mcp.measurements import measured_list
from app_server.mcp.servers.server import McpServer
from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp_wire.errors import McpError
from app_server.runtime.clock import SystemClock

logger = logging.getLogger(__name__)

REFRESH_S = 10.0
"""Seconds that a model request waits for lists of tools that changed."""


async def wait_for_required(servers: ServerSet) -> None:
    """Wait until the required servers have started.

    Raises:
        RequiredServersFailed: some did not.
    """
    required = [name for name, config in servers.settings.servers.items() if config.required]
    if not required:
        return
    names = [name for name in required if servers.servers[name].startable]
    while waiting := [one for one in _undecided(servers) if one.config.name in names]:
        await _first_decided(waiting)
    decided = [servers.servers[name] for name in names if name in servers.servers]
    causes = [f"{s.config.name}: {s.failure}" for s in decided if s.failure is not None]
    if causes:
        raise RequiredServersFailed(
            f"required MCP servers failed to initialize: {'; '.join(causes)}"
        )


async def wait_for_grace(servers: ServerSet, began_at: float) -> None:
    """Wait until every start is decided, but no longer than the grace.

    It began at `began_at`, on the clock of anyio. No start is waited for twice.
    """
    grace_s = servers.settings.startup_grace_s
    with anyio.CancelScope(deadline=math.inf if grace_s is None else began_at + grace_s):
        while waiting := [one for one in _undecided(servers) if not one.waited_for]:
            await _first_decided(waiting)
    for server in servers.servers.values():
        server.waited_for |= not server.settled.is_set()


@dataclass(frozen=True, slots=True)
class WantedServers:
    """Servers that a model request waits for until they have started, or failed."""

    names: frozenset[str] = frozenset()
    plugin_ids: frozenset[str] = frozenset()
    """Plugins that bring them."""
    with_skills: bool = False
    """Also all that may have skills."""

    def __contains__(self, config: ServerConfig) -> bool:
        metadata = config.metadata
        return (
            config.name in self.names
            or metadata.plugin_id in self.plugin_ids
            or (metadata.serves_skills and self.with_skills)
        )


async def wait_for_wanted(servers: ServerSet, wanted: WantedServers) -> None:
    """Wait until the starts of some servers are decided; each takes its `startup_timeout_sec`."""
    while waiting := [one for one in _undecided(servers) if one.config in wanted]:
        await _first_decided(waiting)


def _undecided(servers: ServerSet) -> list[McpServer]:
    return [server for server in servers.servers.values() if not server.settled.is_set()]


async def _first_decided(waiting: Sequence[McpServer]) -> None:
    """Wait until the first start is decided; lazy servers start for it, all of them.

    Then the servers are to be looked at again, as another one may have replaced it.
    """
    for server in waiting:
        server.wanted.set()
    await waiting[0].settled.wait()


async def refresh_lists(servers: ServerSet) -> None:
    """List tools again where servers said that they changed, if that is wanted at all."""
    if not servers.settings.follows_list_changes:
        return
    changed = [server for server in servers.servers.values() if server.list_is_old]
    if not changed:
        return
    with anyio.move_on_after(REFRESH_S):
        async with anyio.create_task_group() as tasks:
            for server in changed:
                tasks.start_soon(_refresh_list, server)


async def _refresh_list(server: McpServer) -> None:
    """List the tools again; a server that does not give the list is asked again next time."""
    if server.listing is None or server.status != "connected":
        return
    # Before the request: what changes while it is answered counts for the next one.
    server.list_is_old = False
    instance = server.instance
    changes = 0 if instance is None else instance.list_changes
    try:
        with server.lease() as connection, measured_list(server.config):
            tools, meta = await list_all(connection, "tools/list", "tools")
    except ListTooLarge as exc:
        # Asking again would give the same; if the server shortens the list, it says so.
        logger.warning("MCP server %s: its old list of tools stays: %s", server.config.name, exc)
    except McpError as exc:
        server.list_is_old = True
        # The text is the server's.
        kind = type(exc).__name__
        logger.info("MCP server %s: its tools cannot be listed: %s", server.config.name, kind)
    except BaseException:
        server.list_is_old = True
        raise
    else:
        server.record.listed(tools)
        listing = await anyio.to_thread.run_sync(server.listing.with_tools, tools, meta)
        if instance is None:
            server.listing = listing
        else:
            instance.relist(listing, changes, SystemClock().now_ms())
