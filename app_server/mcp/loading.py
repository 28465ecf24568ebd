"""The late import of the client of MCP servers, with all that speaks HTTP to them."""

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from app_server.mcp.catalog.config import ServerConfig
from app_server.mcp.connection import ConnectionOwner
from app_server.mcp.processes import Processes
from app_server.runtime.loader import load

ServeConnection: TypeAlias = Callable[
    [ServerConfig, str, ConnectionOwner, Processes], Awaitable[None]
]
"""Holds one connection from start to end (`app_server.mcp.client.serve_connection`)."""


async def hold_connection(
    config: ServerConfig, cwd: str, owner: ConnectionOwner, processes: Processes
) -> None:
    """Import the client, unless that was done, and hold a connection from start to end.

    Raises:
        LoadFailed: it cannot be imported now.
    """
    serve = await load_client()
    await serve(config, cwd, owner, processes)


async def load_client() -> ServeConnection:
    """Import the client, beside the event loop, and return what connects with it.

    Raises:
        LoadFailed: it cannot be imported now.
    """
    return await load(_serve_connection)


def _serve_connection() -> ServeConnection:
    from app_server.mcp.client import serve_connection

    return serve_connection
