"""Whether a server behind a URL has a sign-in, and whether there has been one.

Source: docs/mcp.md, "Sign-in".
"""

import time
from collections.abc import Callable
from types import ModuleType
from typing import Any, Literal, TypeAlias

import anyio

from app_server.mcp.catalog.config import HttpTransport, ServerConfig
from app_server.mcp.errors import OAuthFailed
from app_server.mcp.processes import Processes
from app_server.mcp.servers.server import McpServer
from app_server.runtime.http.ttl_cache import TtlCache
from app_server.runtime.loader import load

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
        self._probing: Any = None

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
            if await self._stored(config, transport):
                return "oAuth"
            if transport.header_command is not None:
                # Its headers may be all that the server wants; asking would be asking without them.
                return "unknown"
            limit_s = CONNECTED_DISCOVERY_S if server.status == "connected" else DISCOVERY_S
            return await self._found_out(config, transport, limit_s)
        except OAuthFailed:
            return "unsupported"

    async def _stored(self, config: ServerConfig, http: HttpTransport) -> bool:
        questions = await self._questions()
        return bool(await questions.has_credential(config, http, self._processes))

    async def _found_out(
        self, config: ServerConfig, http: HttpTransport, limit_s: float
    ) -> AuthStatus:
        place = config.environment_id, http.url
        if (known := self._found.get(place)) is not None:
            return known
        found: AuthStatus = "unknown"
        with anyio.move_on_after(limit_s):
            questions = await self._questions()
            is_offered = await questions.offers_sign_in(config, http, self._processes)
            found = "notLoggedIn" if is_offered else "unsupported"
        self._found.put(place, found, KEPT_S / 10 if found == "unknown" else KEPT_S)
        return found

    async def _questions(self) -> Any:
        """Import what asks, beside the event loop: it brings the SDK."""
        if self._probing is None:
            self._probing = await load(_probing)
        return self._probing


def _probing() -> ModuleType:
    from app_server.mcp.oauth import probing

    return probing
