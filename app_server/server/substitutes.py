"""What tests put in the place of services."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app_server.extension.registry import ExtensionRegistry
    from app_server.handlers.apps.port import AppsPort
    from app_server.runtime.clock import Clock
    from app_server.turns.model.interface import Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Substitutes:
    """What stands in for a service; None leaves the real one."""

    clock: "Clock | None" = None
    model: "Model | None" = None
    extensions: "ExtensionRegistry | None" = None
    """With it there are no apps and no plugins of the real ones."""
    apps: "AppsPort | None" = None
    """Taken where `extensions` are given."""
