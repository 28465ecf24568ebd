"""The MCP servers that skills depend on. No I/O.

Source: docs/skills.md, "Servers that skills need".
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from app_server.extensions.skills.folders import FoundSkill

if TYPE_CHECKING:
    from protocol.integrations.skills import SkillToolDependency

logger = logging.getLogger(__name__)

Key: TypeAlias = Literal["command", "url"]

_KEYS: dict[str, Key] = {"stdio": "command", "streamable_http": "url"}
"""Key of config.toml that configures a server, by its transport."""


@dataclass(frozen=True, slots=True)
class NeededServer:
    """One server, as a skill describes it."""

    name: str
    key: Key
    value: str
    """The command, without arguments, or the URL."""

    @property
    def table(self) -> dict[str, str]:
        """Table for `[mcp_servers.NAME]`."""
        return {self.key: self.value}


def needed_servers(skills: Sequence[FoundSkill]) -> list[NeededServer]:
    """Return the servers that skills declare, each command and each URL once, in their order.

    What cannot be a server is left out, and logged.
    """
    needed: dict[tuple[Key, str], NeededServer] = {}
    for one in skills:
        declared = one.skill.dependencies
        for tool in () if declared is None else declared.tools:
            if tool.type.lower() != "mcp":
                continue
            server = _server(tool)
            if server is None:
                logger.warning("skill %s: %s is no usable server", one.skill.name, tool.value)
                continue
            needed.setdefault((server.key, server.value), server)
    return list(needed.values())


def _server(tool: "SkillToolDependency") -> NeededServer | None:
    key = _KEYS.get((tool.transport or "streamable_http").lower())
    value = None if key is None else getattr(tool, key)
    return None if key is None or not value else NeededServer(tool.value, key, value)
