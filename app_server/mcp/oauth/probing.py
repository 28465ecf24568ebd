"""The two questions behind a server's `authStatus`."""

import anyio.to_thread

from app_server.mcp.catalog.config import HttpTransport, ServerUnavailable
from app_server.mcp.errors import OAuthFailed
from app_server.mcp.oauth.credentials import CredentialStore
from app_server.mcp.oauth.discovery import discover
from app_server.mcp.oauth.web import open_web
from app_server.runtime.clock import SystemClock


async def has_credential(name: str, transport: HttpTransport) -> bool:
    """Whether a credential is stored that may open the server.

    Raises:
        OAuthFailed: the store cannot be read.
    """
    if transport.oauth.home is None:
        return False
    store = CredentialStore(transport.oauth.home, transport.oauth.store)
    found = await anyio.to_thread.run_sync(store.load, name, transport.url, abandon_on_cancel=True)
    return found is not None and found.usable(SystemClock().now_ms())


async def offers_sign_in(name: str, transport: HttpTransport) -> bool:
    """Whether the server has an authorization server that can be found; waits without limit."""
    try:
        async with open_web(transport.url, transport.headers(name)) as web:
            return await discover(web, transport.url) is not None
    except (OAuthFailed, ServerUnavailable):
        return False
