"""One inventory of apps as it is served: what is made of it, and the registrations for each use.

Source: docs/apps.md, "Discovery", "Registrations".
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from app_server.apps.inventory.inventory import (
    Inventory,
    build_inventory,
)
from app_server.apps.inventory.names import Route, allocate_routes
from app_server.apps.policy import AppsPolicy, registrations
from app_server.apps.presentation import (
    NOTHING_PRESENTED,
    ApprovalTemplates,
    Presented,
    PresentedTools,
    present_tools,
)
from app_server.apps.routes.generation import Generation
from app_server.apps.routes.manifests import NO_MANIFESTS, Manifests, make_manifests
from app_server.extension.registration import Registration
from protocol.model import JsonObject

MAX_USES = 8
"""Uses whose registrations are kept ready; those of further ones are made when they are wanted."""


@dataclass(frozen=True, slots=True)
class Use:
    """What makes one thread's registrations differ from another's."""

    policy: AppsPolicy
    origin: str
    """Of the endpoint."""
    plugin_names: Mapping[str, Sequence[str]]
    """Display names of plugins by connector id."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """What is made of an inventory before it is served."""

    inventory: Inventory
    routes: tuple[Route, ...]
    presented: PresentedTools
    manifests: Manifests


@dataclass(frozen=True, slots=True)
class Published:
    """One generation, as it is used."""

    generation: Generation
    presented: PresentedTools
    routes: dict[str, Route]
    """By server."""
    manifests: Manifests
    _made: list[tuple[Use, Sequence[Registration]]] = field(default_factory=list)

    def registrations(self, use: Use) -> Sequence[Registration]:
        """Return the servers, that of resources first; the same ones for equal uses."""
        for known, made in self._made:
            if known == use:
                return made
        fresh = registrations(
            self.generation,
            use.policy,
            use.plugin_names,
            origin=use.origin,
            presented=self.presented,
            manifests=self.manifests,
        )
        self._made.append((use, fresh))
        del self._made[:-MAX_USES]
        return fresh

    def parts(self) -> list[object]:
        """Return what most of the memory is for: tools, and what is said of each."""
        inventory = self.generation.inventory
        return [
            *inventory.raw_tools,
            *(tool for connector in inventory.connectors for tool in connector.tools),
            *(tool for manifest in self.manifests.values() for tool in manifest.tools),
            *(one.metadata for _, made in self._made for one in made),
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
    inventory = build_inventory(tools)
    served = None if before is None or before.generation.is_closing else before.generation
    if served is not None and served.inventory.connectors == inventory.connectors:
        return None
    routes = allocate_routes(inventory)
    manifests, presented = NO_MANIFESTS, NOTHING_PRESENTED
    if before is not None:
        manifests, presented = before.manifests, Presented(before.routes, before.presented)
    return Prepared(
        inventory,
        routes,
        present_tools(routes, templates, presented),
        make_manifests(routes, has_files=has_files, before=manifests),
    )
