"""The one place that imports the MCP SDK late: it costs a third of a second and 40 MB."""

import importlib
from collections.abc import Awaitable, Callable
from typing import TypeAlias, cast

import anyio.to_thread

from app_server.mcp.config import ServerConfig
from app_server.mcp.peer import ConnectionOwner
from app_server.mcp.processes import Processes

ServeConnection: TypeAlias = Callable[
    [ServerConfig, str, ConnectionOwner, Processes], Awaitable[None]
]
"""Holds one connection from start to end (`app_server.mcp.client.serve_connection`)."""


async def load_sdk() -> ServeConnection:
    """Import the SDK, beside the event loop, and return what connects with it."""
    client = await anyio.to_thread.run_sync(importlib.import_module, "app_server.mcp.client")
    return cast(ServeConnection, client.serve_connection)
