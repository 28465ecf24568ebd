"""One look at the apps of an account, which stay as they are until it is let go.

Source: docs/apps.md, "Snapshots".
"""

from collections.abc import Sequence
from typing import Self

from app_server.apps.inventory.inventory import Connector
from app_server.apps.published import Published


class Snapshot:
    """A generation, leased; use it as a context, or call `release`."""

    def __init__(self, published: Published, *, is_live: bool) -> None:
        self.is_live = is_live
        """Whether it was fetched since the sign-in or the start, not read from disk."""
        self.published = published
        self._lease = published.generation.lease()

    @property
    def apps(self) -> Sequence[Connector]:
        """Connectors with a real tool."""
        return self.published.generation.inventory.installed

    def missing(self, app_ids: Sequence[str]) -> list[str]:
        """Return those of these apps that the account has not linked, in their order."""
        linked = {connector.id for connector in self.published.generation.inventory.connectors}
        return [id_ for id_ in app_ids if id_ not in linked]

    def release(self) -> None:
        """Let the generation go; called any number of times."""
        self._lease.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.release()
