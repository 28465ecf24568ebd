"""One look at the apps of an account, which stay as they are until it is let go.

Source: docs/apps.md, "Snapshots".
"""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

from app_server.apps.inventory.inventory import AppTool, Connector, Inventory
from app_server.apps.policy import AppsPolicy
from app_server.apps.published import Published, Use
from app_server.extension.registration import Registration


class Snapshot:
    """A generation, leased; use it as a context, or call `release`."""

    def __init__(
        self,
        published: Published,
        policy: AppsPolicy,
        origin: str,
        *,
        is_live: bool,
        plugin_names: Mapping[str, Sequence[str]],
    ) -> None:
        """`plugin_names` are display names of plugins by connector id."""
        self.is_live = is_live
        """Whether it was fetched since the sign-in or the start, not read from disk."""
        self.policy = policy
        self._published = published
        self._origin = origin
        self._plugin_names = plugin_names
        self._lease = published.generation.lease()

    @property
    def inventory(self) -> Inventory:
        """All that was listed."""
        return self._published.generation.inventory

    @property
    def apps(self) -> Sequence[Connector]:
        """Connectors with a real tool."""
        return self.inventory.installed

    @property
    def all_connectors(self) -> Sequence[Connector]:
        """Those too that can only be linked."""
        return self.inventory.connectors

    def missing(self, app_ids: Sequence[str]) -> list[str]:
        """Return those of these apps that the account has not linked, in their order."""
        linked = {connector.id for connector in self.all_connectors}
        return [id_ for id_ in app_ids if id_ not in linked]

    @property
    def tools(self) -> Mapping[tuple[str, str], tuple[Connector, AppTool]]:
        """Tools by the raw names of their server and themselves."""
        return {
            (server, name): (route.connector, tool)
            for server, route in self._published.routes.items()
            for name, tool in route.tools.items()
        }

    def registrations(self) -> list[Registration]:
        """Return the servers, that of resources first, then by name."""
        return list(
            self._published.registrations(Use(self.policy, self._origin, self._plugin_names))
        )

    def release(self) -> None:
        """Let the generation go; called any number of times."""
        self._lease.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self.release()
