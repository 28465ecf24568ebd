"""Reports on servers: status, tools and resources, and auth status.

Source: docs/mcp.md, "Status", "Sign-in".
"""

import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

import anyio
import anyio.to_thread

from app_server.mcp.bounds import MAX_DECLARED_BYTES
from app_server.mcp.catalog.config import HttpTransport, ServerConfig
from app_server.mcp.errors import OAuthFailed, UnknownServer
from app_server.mcp.oauth.credentials import CredentialStore
from app_server.mcp.oauth.target import SignInTarget
from app_server.mcp.processes import Processes
from app_server.mcp.record import ServerRecord
from app_server.mcp.servers.requests import list_or_nothing
from app_server.mcp.servers.server import McpServer
from app_server.mcp.servers.server_set import ServerSet
from app_server.mcp.tools.listing import Listing
from app_server.mcp.tools.table import McpToolTable
from app_server.runtime.clock import SystemClock
from app_server.runtime.http.ttl_cache import TtlCache
from app_server.runtime.loader import load
from protocol.model import JsonObject

logger = logging.getLogger(__name__)

AuthStatus: TypeAlias = Literal["unknown", "unsupported", "notLoggedIn", "bearerToken", "oAuth"]

DISCOVERY_S = 5.0
"""For finding out whether a server that did not let us in offers a sign-in."""

CONNECTED_DISCOVERY_S = 0.5
"""Seconds to look for a sign-in of a server that is connected without one."""

KEPT_S = 300.0
"""Seconds that an auth status is cached; `unknown` is cached for a tenth of them."""

MAX_KEPT = 256


class AuthProbe:
    """Asks servers, and remembers their answers by environment and URL."""

    def __init__(self, processes: Processes, now_s: Callable[[], float] = time.monotonic) -> None:
        """Ask servers of other environments through `processes`."""
        self._processes = processes
        self._found: TtlCache[tuple[str, str], AuthStatus] = TtlCache(MAX_KEPT, now_s)

    async def status(self, server: McpServer) -> AuthStatus:
        """Say how things stand with a server whose start has been decided."""
        config, transport = server.config, server.config.transport
        if not isinstance(transport, HttpTransport) or not config.enabled:
            return "unsupported"
        if transport.has_credentials:
            return "bearerToken"
        if not transport.signs_in:
            return "unsupported"
        try:
            target = SignInTarget.of(config, transport, self._processes)
            if await _is_signed_in(target):
                return "oAuth"
            if server.failure is not None and server.failure.is_refusal:
                # It answered, so there is nothing to look for.
                return "unsupported"
            if transport.header_command is not None:
                # Its headers may be all that the server wants; asking would be asking without them.
                return "unknown"
            limit_s = CONNECTED_DISCOVERY_S if server.status == "connected" else DISCOVERY_S
            return await self._found_out(target, limit_s)
        except OAuthFailed:
            return "unsupported"

    async def _found_out(self, target: SignInTarget, limit_s: float) -> AuthStatus:
        place = target.environment_id, target.transport.url
        if (known := self._found.get(place)) is not None:
            return known
        found: AuthStatus = "unknown"
        # The SDK is imported for this, which is no time of the server's.
        offers_sign_in = await load(_offers_sign_in)
        with anyio.move_on_after(limit_s):
            found = "notLoggedIn" if await offers_sign_in(target) else "unsupported"
        self._found.put(place, found, KEPT_S / 10 if found == "unknown" else KEPT_S)
        return found


async def _is_signed_in(target: SignInTarget) -> bool:
    """Whether a credential is stored that may open the server."""
    oauth = target.transport.oauth
    if oauth.home is None:
        return False
    store = CredentialStore(oauth.home, oauth.store)
    found = await anyio.to_thread.run_sync(target.load, store, abandon_on_cancel=True)
    return found is not None and found.usable(SystemClock().now_ms())


def _offers_sign_in() -> Callable[[SignInTarget], Awaitable[bool]]:
    from app_server.mcp.oauth.authorization import offers_sign_in

    return offers_sign_in


NOT_SHOWN = (
    "its tools are not shown to the model: with them the tools of the thread would take more than "
    f"{MAX_DECLARED_BYTES} bytes of a model request"
)


@dataclass(frozen=True, slots=True)
class ServerReport:
    """One server, as configured and as it is now."""

    config: ServerConfig
    record: ServerRecord
    status: str
    listing: Listing
    tools_error: str | None = None
    tools_cached_at_ms: int | None = None
    resources: Sequence[JsonObject] = ()
    resource_templates: Sequence[JsonObject] = ()
    auth_status: AuthStatus = "unsupported"
    pid: int | None = None
    """Of its process on this machine."""
    resident_bytes: int | None = None
    """Of the process and those that it started."""
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
    tools_cached_at_ms = cached_at_ms(server)
    # A server whose tools are known is not started to be looked at.
    if resources and tools_cached_at_ms is None and server.status == "connected":
        capabilities = listing.capabilities
        if isinstance(capabilities, dict) and "resources" in capabilities:
            found = [
                await list_or_nothing(server, "resources/list", "resources"),
                await list_or_nothing(server, "resources/templates/list", "resourceTemplates"),
            ]
    pid = server.pid
    resident = None if pid is None else await anyio.to_thread.run_sync(resident_bytes, pid)
    return ServerReport(
        config=config,
        pid=pid,
        resident_bytes=resident,
        record=server.record,
        status=server.status,
        listing=listing,
        tools_error=_tools_error(server, listing),
        tools_cached_at_ms=tools_cached_at_ms,
        resources=found[0],
        resource_templates=found[1],
        auth_status=auth_status,
        tools={name: listing.tools[name] for name in config.allowed_of(listing.tools)},
    )


MAX_PROCESSES = 256
"""Of one server whose memory is added up."""

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(pid: int) -> int | None:
    """Return the memory of a process and of those that it started; None if it is not known.

    Shared pages count for each. Linux only; blocks.
    """
    total, left, seen = None, [pid], 0
    while left and seen < MAX_PROCESSES:
        process, seen = Path(f"/proc/{left.pop()}"), seen + 1
        with suppress(OSError, ValueError, IndexError):
            total = (total or 0) + int((process / "statm").read_text().split()[1]) * PAGE_BYTES
            for task in (process / "task").iterdir():
                left += map(int, (task / "children").read_text().split())
    return total


def cached_at_ms(server: McpServer) -> int | None:
    """Return when its tools were listed, if it would have to start for more."""
    instance = server.instance
    if instance is None or instance.is_connected:
        return None
    return server.record.tools_listed_at_ms


def _tools_error(server: McpServer, listing: Listing) -> str | None:
    if server.config.enabled and not server.startable:
        return f"unknown environment `{server.config.environment_id}`"
    # A server that died later still has the list it gave.
    return str(server.failure) if server.failure is not None and not listing.tools else None
