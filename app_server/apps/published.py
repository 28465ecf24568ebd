"""One inventory of apps as it is served: what is made of it, and the registrations for each use.

Source: docs/apps.md, "Discovery", "Registrations".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app_server.apps.inventory.inventory import Inventory, build_inventory
from app_server.apps.inventory.names import Route, allocate_routes
from app_server.apps.policy import Use, registrations
from app_server.apps.presentation import ApprovalTemplates, PresentedTools
from app_server.apps.routes.generation import Generation
from app_server.apps.routes.handshakes import Manifests, make_manifests
from app_server.extensions.contract.registration import Registration
from protocol.model import JsonObject

MAX_USES = 8
"""Uses whose registrations are kept ready; those of further ones are made when they are wanted."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """The routes, metadata and manifests made of an inventory before it is served."""

    inventory: Inventory
    routes: Mapping[str, Route]
    """By server."""
    presented: Mapping[str, PresentedTools]
    """By server."""
    manifests: Manifests


@dataclass(frozen=True, slots=True)
class Published:
    """One generation, as it is used."""

    generation: Generation
    made: Prepared
    _registrations: list[tuple[Use, Sequence[Registration]]] = field(default_factory=list)

    def registrations(self, use: Use) -> Sequence[Registration]:
        """Return the servers, that of resources first; the same ones for equal uses."""
        for known, made in self._registrations:
            if known == use:
                return made
        fresh = registrations(self.generation, use, self.made.presented, self.made.manifests)
        self._registrations.append((use, fresh))
        del self._registrations[:-MAX_USES]
        return fresh

    def parts(self) -> list[object]:
        """Return what most of the memory is for: tools, and what is said of each."""
        inventory = self.made.inventory
        return [
            *inventory.raw_tools,
            *(tool for connector in inventory.connectors for tool in connector.tools),
            *(tool for manifest in self.made.manifests.values() for tool in manifest.tools),
            *(one.metadata for _, made in self._registrations for one in made),
        ]

    def make_ready(self, uses: Sequence[Use]) -> None:
        """Make the registrations for uses: a matter for worker threads."""
        for use in uses:
            self.registrations(use)


def prepare(
    tools: Sequence[JsonObject],
    before: Published | None,
    templates: ApprovalTemplates,
    *,
    has_files: bool,
) -> Prepared | None:
    """Make of an inventory what is served; None if all of that is served already.

    A full inventory takes some ten ms: for worker threads.

    Raises:
        InconsistentInventory: a connector goes by two names.
    """
    old = Prepared(Inventory((), ()), {}, {}, {}) if before is None else before.made
    inventory = build_inventory(tools, old.inventory.connectors)
    is_served = before is not None and not before.generation.is_closing
    if is_served and inventory.connectors == old.inventory.connectors:
        return None
    routes = {route.server: route for route in allocate_routes(inventory, old.routes)}
    presented = {
        server: old.presented[server]
        if old.routes.get(server) is route
        else PresentedTools(route, templates)
        for server, route in routes.items()
    }
    manifests = make_manifests(
        routes.values(), has_files=has_files, old_routes=old.routes, before=old.manifests
    )
    return Prepared(inventory, routes, presented, manifests)
