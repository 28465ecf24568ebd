"""The late import of what asks authorization servers: it brings the MCP SDK.

Source: docs/architecture.md, "What is loaded late".
"""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from app_server.mcp.errors import OAuthUnavailable
from app_server.mcp.oauth.target import SignInTarget
from app_server.runtime.loader import LoadFailed, load

if TYPE_CHECKING:
    from app_server.mcp.oauth.authorization import AuthorizationServer
    from app_server.mcp.oauth.web import Web

Discover: TypeAlias = "Callable[[Web, str, str | None], Awaitable[AuthorizationServer | None]]"
"""Finds an authorization server (`app_server.mcp.oauth.authorization.discover`)."""


async def load_discovery() -> Discover:
    """Import the MCP SDK; to be awaited before a time that is a server's begins.

    Raises:
        OAuthUnavailable: it cannot be imported now.
    """
    try:
        return await load(_discover)
    except LoadFailed as exc:
        raise OAuthUnavailable(f"the sign-in cannot be loaded: {exc}") from exc


async def find_authorization_server(
    target: SignInTarget, web: "Web"
) -> "AuthorizationServer | None":
    """Import the MCP SDK and find the authorization server; None when the server names none.

    Raises:
        OAuthUnavailable: a server did not answer, or is not well, or the SDK cannot be imported
            now.
        OAuthFailed: what a server says contradicts itself.
    """
    discover = await load_discovery()
    return await discover(web, target.transport.url, target.transport.oauth.resource)


def _discover() -> Discover:
    from app_server.mcp.oauth.authorization import discover

    return discover
