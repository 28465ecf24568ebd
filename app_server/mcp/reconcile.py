"""Whether a connection still is what the configuration asks for. No I/O.

A connection is made of values: the table of its server and what that resolved to when it started.
Filters, timeouts and approval modes are not part of it; they change without a restart.
Source: docs/mcp.md, "Reload".
"""

from dataclasses import dataclass, field

from app_server.extension.registration import Owner
from app_server.mcp.config import ServerConfig, ServerUnavailable, StdioTransport, Transport


@dataclass(frozen=True, slots=True)
class Ingredients:
    """What one connection is made of; equal ones make the same connection."""

    transport: Transport
    resolved: dict[str, str] | None = field(repr=False)
    """Variables of the process, or headers, with their secrets; None: they could not be found."""
    cwd: str | None
    """Where the process works; None for a URL."""
    owner: Owner | None = None
    """What serves it, if it was registered at run time."""


def ingredients(config: ServerConfig, cwd: str) -> Ingredients:
    """Resolve what a connection would be made of now; `cwd` is for a process without its own."""
    transport = config.transport
    if isinstance(transport, StdioTransport):
        return Ingredients(transport, transport.environment(), transport.cwd or cwd)
    try:
        return Ingredients(transport, transport.headers(config.name), None, config.owner)
    except ServerUnavailable:
        return Ingredients(transport, None, None, config.owner)
