"""What the input of a turn names that has to be there before the model is asked. No I/O.

Source: docs/mcp.md, "Connections"; docs/plugins.md, "In turns".
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from app_server.extensions.contract.plugins import NamedPlugin
from app_server.extensions.skills.instructions import SkillNames
from app_server.mcp.catalog.config import ServerConfig


@dataclass(frozen=True, slots=True)
class NamedByInput:
    """What the user named."""

    plugins: Sequence[NamedPlugin] = ()
    """Those that the model is shown, once it is known which tools they have."""
    plugin_ids: frozenset[str] = frozenset()
    """Plugins of which at least a skill was named."""
    servers: frozenset[str] = frozenset()
    """Raw names of MCP servers."""
    skills: SkillNames = field(default_factory=SkillNames)
    """What may name skills of MCP servers."""

    def wants(self, server: ServerConfig) -> bool:
        """Whether the first request of the turn waits until a server has started, or failed."""
        metadata = server.metadata
        return (
            server.name in self.servers
            or metadata.plugin_id in self.plugin_ids
            or (metadata.serves_skills and bool(self.skills))
        )


NOTHING_NAMED = NamedByInput()
