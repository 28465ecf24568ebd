"""What local servers say of themselves: the answer to a handshake, and the tools they list.

Source: docs/apps.md, "Local routes".
"""

from dataclasses import dataclass

from app_server.apps.files.schema import with_paths
from app_server.apps.inventory.names import RESOURCES, Route, stripped_title
from protocol.lifecycle import PROTOCOL_VERSION
from protocol.model import JsonObject

SANDBOX_STATE = "codex/sandbox-state-meta"
INPUT_CAPABILITY = "codex/tool-input-meta"

MCP_VERSION = "2025-06-18"
"""What a server says to a client that names no other version."""


@dataclass(frozen=True, slots=True)
class Handshake:
    """What a server answers to a handshake."""

    name: str
    title: str
    instructions: str
    capabilities: JsonObject

    def result(self) -> JsonObject:
        """Return the result of `initialize`."""
        return {
            "protocolVersion": MCP_VERSION,
            "capabilities": self.capabilities,
            "serverInfo": {"name": self.name, "title": self.title, "version": PROTOCOL_VERSION},
            "instructions": self.instructions,
        }


RESOURCES_HANDSHAKE = Handshake(
    RESOURCES, "Apps", "Resources of the connected apps.", {"resources": {}}
)


def handshake_of(route: Route, *, has_files: bool) -> Handshake:
    """Return what the server of a connector answers to a handshake."""
    connector = route.connector
    capabilities: JsonObject = {"tools": {}, "resources": {}}
    if has_files:
        capabilities["experimental"] = {SANDBOX_STATE: {}, INPUT_CAPABILITY: {}}
    instructions = connector.description or f"Tools of the app {connector.name}."
    return Handshake(route.server, connector.name, instructions, capabilities)


def listed_tools(route: Route, *, has_files: bool) -> list[JsonObject]:
    """List the tools of a connector under their local names."""
    tools = []
    for name, tool in route.tools.items():
        listed = {**tool.definition, "name": name}
        if (title := stripped_title(route.connector, tool)) is not None:
            listed["title"] = title
        tools.append(with_paths(listed, tool.file_params) if has_files else listed)
    return tools
