"""What is known of a server: for connections to come, and for people who ask what became of it.

Source: docs/mcp.md, "Revisions of the protocol", "Status".
"""

import logging
from dataclasses import dataclass, field

from app_server.mcp.catalog.config import ServerConfig, StdioTransport
from app_server.mcp.processes import ServerOutput

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Learned:
    """What connections to a server found out; those to come begin with it."""

    protocol_version: str | None = None
    """Of MCP, as it was agreed on last; None: the server is asked."""
    keeps_session: bool = True
    """Whether it may remember what was said on a connection."""


@dataclass(slots=True)
class ServerRecord:
    """What became of a server so far; a server that takes the place of one goes on with its."""

    config: ServerConfig
    protocol_version: str | None = None
    """Of MCP, as a connection agreed on it last; None before the first."""
    started_at_ms: int | None = None
    """When it became ready last, in Unix milliseconds."""
    restarts: int = 0
    """Starts after the first one, whatever ended the server."""
    last_error: str | None = None
    """Why it did not start, ended, or was refused something, last."""
    last_fault: str | None = None
    """What it did last against MCP, as a text that begins with a verb; it went on."""
    output: ServerOutput = field(default_factory=ServerOutput)
    """What its processes wrote to stderr."""
    shared_by: int = 1
    """Threads that use the process or the session, this one included."""
    tools_cached_at_ms: int | None = None
    """When the tools were listed, in Unix milliseconds, if they come from the cache."""

    def __post_init__(self) -> None:
        if self.config.known is not None:
            self.protocol_version = self.config.known.protocol_version

    def ended(self, reason: str) -> None:
        """Note why the server ended, with the name of its command."""
        transport = self.config.transport
        command = transport.command if isinstance(transport, StdioTransport) else None
        self.last_error = reason if command is None else f"{command}: {reason}"

    def agreed(self, protocol_version: str) -> None:
        """Note which revision is spoken, and that it is another one, if it is."""
        before, self.protocol_version = self.protocol_version, protocol_version
        if before not in (None, protocol_version):
            self.misbehaved(f"speaks MCP {protocol_version}, and spoke {before} before")

    def misbehaved(self, what: str) -> None:
        """Note what the server did against MCP; it goes on."""
        if what != self.last_fault:
            self.last_fault = what
            logger.warning("MCP server %s %s", self.config.name, what)
