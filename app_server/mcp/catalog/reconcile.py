"""Whether a connection still is what the configuration asks for. No I/O.

A connection is made of values: the table of its server and what that resolved to when it started.
Filters, timeouts and approval modes are not part of it; they change without a restart.
Source: docs/mcp.md, "Reload".
"""

import os
from dataclasses import dataclass, field

from app_server.extensions.contract.registration import Owner
from app_server.mcp.catalog.config import (
    LOCAL,
    ServerConfig,
    ServerUnavailable,
    StdioTransport,
    Transport,
)


@dataclass(frozen=True, slots=True)
class Ingredients:
    """What one connection is made of; equal ones make the same connection."""

    transport: Transport
    environment_id: str
    resolved: dict[str, str] | None = field(repr=False)
    """Variables of the process, or headers, with their secrets; None: they could not be found."""
    cwd: str | None
    """Where the process works; None for a URL, and where its exec server works."""
    owner: Owner | None = None
    """What serves it, if it was registered at run time."""


def ingredients(config: ServerConfig, cwd: str) -> Ingredients:
    """Resolve what a connection would be made of now; `cwd` is for a process without its own."""
    transport, environment_id = config.transport, config.environment_id
    if isinstance(transport, StdioTransport):
        launch = transport.launch(environment_id, cwd)
        # What the machine of an exec server has in its own environment is its own affair.
        parent = os.environ if environment_id == LOCAL else {}
        return Ingredients(transport, environment_id, launch.environment(parent), launch.cwd)
    try:
        headers = transport.headers(config.name)
    except ServerUnavailable:
        headers = None
    return Ingredients(transport, environment_id, headers, None, config.owner)
