"""`initialize` results and tool lists of local servers; known without the MCP SDK.

Source: docs/apps.md, "Local routes", "Registrations"; docs/extensions.md, "Manifests".
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from app_server.apps.files.files import with_paths
from app_server.apps.inventory.names import RESOURCES, Route, stripped_title
from app_server.extensions.contract.registration import Manifest
from protocol.model import JsonObject
from protocol.server.lifecycle import PROTOCOL_VERSION

SANDBOX_STATE = "codex/sandbox-state-meta"
INPUT_CAPABILITY = "codex/tool-input-meta"

Manifests: TypeAlias = Mapping[str, Manifest]
"""By server."""

MCP_VERSION = "2025-06-18"
"""The protocol version for a client that names no other one."""


@dataclass(frozen=True, slots=True)
class RouteHandshake:
    """The contents of a server's `initialize` result."""

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


RESOURCES_HANDSHAKE = RouteHandshake(
    RESOURCES, "Apps", "Resources of the connected apps.", {"resources": {}}
)


def handshake_of(route: Route, *, has_files: bool) -> RouteHandshake:
    """Return a connector's answer to `initialize`."""
    connector = route.connector
    capabilities: JsonObject = {"tools": {}, "resources": {}}
    if has_files:
        capabilities["experimental"] = {SANDBOX_STATE: {}, INPUT_CAPABILITY: {}}
    instructions = connector.description or f"Tools of the app {connector.name}."
    return RouteHandshake(route.server, connector.name, instructions, capabilities)


def listed_tools(route: Route, *, has_files: bool) -> list[JsonObject]:
    """List the tools of a connector under their local names."""
    return [listed_tool(route, name, has_files=has_files) for name in route.tools]


def listed_tool(route: Route, name: str, *, has_files: bool) -> JsonObject:
    """Return the tool of a connector with this local name as it is listed."""
    tool = route.tools[name]
    listed = {**tool.definition, "name": name}
    if (title := stripped_title(route.connector, tool)) is not None:
        listed["title"] = title
    return with_paths(listed, tool.file_params) if has_files else listed


def make_manifests(
    routes: Iterable[Route], *, has_files: bool, old_routes: Mapping[str, Route], before: Manifests
) -> Manifests:
    """Describe each route's handshake and tools; unchanged routes keep those of `before`.

    A full inventory takes some ten ms: not for the loop.
    """
    made = {RESOURCES: before.get(RESOURCES) or Manifest(RESOURCES_HANDSHAKE.result(), ())}
    for route in routes:
        if old_routes.get(route.server) is route:
            made[route.server] = before[route.server]
            continue
        hello = handshake_of(route, has_files=has_files).result()
        made[route.server] = Manifest(hello, tuple(listed_tools(route, has_files=has_files)))
    return made
