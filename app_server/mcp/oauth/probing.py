"""The two questions behind a server's `authStatus`."""

import anyio.to_thread

from app_server.mcp.catalog.config import HttpTransport, ServerConfig, ServerUnavailable
from app_server.mcp.errors import OAuthFailed
from app_server.mcp.oauth.credentials import CredentialStore
from app_server.mcp.oauth.discovery import discover
from app_server.mcp.oauth.target import SignInTarget
from app_server.mcp.processes import Processes
from app_server.runtime.clock import SystemClock


async def has_credential(config: ServerConfig, http: HttpTransport, processes: Processes) -> bool:
    """Whether a credential is stored that may open the server.

    Raises:
        OAuthFailed: the store cannot be read.
    """
    if http.oauth.home is None:
        return False
    target = SignInTarget.of(config, http, processes)
    store = CredentialStore(http.oauth.home, http.oauth.store)
    found = await anyio.to_thread.run_sync(target.load, store, abandon_on_cancel=True)
    return found is not None and found.usable(SystemClock().now_ms())


async def offers_sign_in(config: ServerConfig, http: HttpTransport, processes: Processes) -> bool:
    """Whether the server has an authorization server that can be found; waits without limit."""
    try:
        async with SignInTarget.of(config, http, processes).open_web() as web:
            return await discover(web, http.url) is not None
    except (OAuthFailed, ServerUnavailable):
        return False
