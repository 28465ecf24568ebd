"""What the servers of an inventory say of themselves, made once beside the event loop.

Source: docs/apps.md, "Registrations"; docs/extensions.md, "Manifests".
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from app_server.apps.inventory.names import RESOURCES, Route
from app_server.apps.routes.handshakes import (
    RESOURCES_HANDSHAKE,
    Handshake,
    handshake_of,
    listed_tools,
)
from app_server.extension.manifest import Manifest
from protocol.model import JsonObject

Manifests: TypeAlias = Mapping[str, Manifest]
"""By server."""

NO_MANIFESTS: Manifests = {}


def make_manifests(
    routes: Sequence[Route], *, has_files: bool, before: Manifests = NO_MANIFESTS
) -> Manifests:
    """Say what each route will answer; what is as `before` stays the very same object.

    A full inventory takes some ten ms: not for the loop.
    """
    made = {RESOURCES: _manifest(RESOURCES_HANDSHAKE, [])}
    for route in routes:
        handshake = handshake_of(route, has_files=has_files)
        made[route.server] = _manifest(handshake, listed_tools(route, has_files=has_files))
    return {
        server: old if (old := before.get(server)) == manifest and old is not None else manifest
        for server, manifest in made.items()
    }


def _manifest(handshake: Handshake, tools: Sequence[JsonObject]) -> Manifest:
    return Manifest.of(handshake.result(), tools)
