"""What the input of a turn names that has to be there before the model is asked. No I/O.

Source: docs/mcp.md, "Connections"; docs/plugins.md, "In turns".
"""

from collections.abc import Sequence
from dataclasses import dataclass

from app_server.extension.mentions import NamedPlugin
from app_server.mcp.catalog.config import ServerConfig


@dataclass(frozen=True, slots=True)
class NamedByInput:
    """What the user named."""

    plugins: Sequence[NamedPlugin] = ()
    """Those that the model is told of, once it can be said which tools they have."""
    plugin_ids: frozenset[str] = frozenset()
    """Plugins of which at least a skill was named."""
    servers: frozenset[str] = frozenset()
    """Raw names of MCP servers."""

    def wants(self, server: ServerConfig) -> bool:
        """Whether the first request of the turn waits until a server has started, or failed."""
        return server.name in self.servers or server.metadata.plugin_id in self.plugin_ids


NOTHING_NAMED = NamedByInput()
