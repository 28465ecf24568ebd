"""Whether a server behind a URL has a sign-in, and whether there has been one.

Source: docs/mcp.md, "Sign-in".
"""

import time
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias

import anyio
import anyio.to_thread

from app_server.mcp.catalog.config import HttpTransport
from app_server.mcp.errors import OAuthFailed
from app_server.mcp.oauth.credentials import CredentialStore
from app_server.mcp.oauth.target import SignInTarget
from app_server.mcp.processes import Processes
from app_server.mcp.servers.server import McpServer
from app_server.runtime.clock import SystemClock
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
