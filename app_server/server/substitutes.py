"""What tests put in the place of services."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from app_server.extension.registry import ExtensionRegistry
    from app_server.handlers.apps.port import AppsPort


@dataclass(frozen=True, slots=True, kw_only=True)
class Substitutes:
    """What stands in for a service; None leaves the real one."""

    extensions: "ExtensionRegistry | None" = None
    """With it there are no apps and no plugins of the real ones."""
    apps: "AppsPort | None" = None
    """Taken where `extensions` are given."""
