"""Plugins that a model may suggest, and who says whether an install is complete.

Source: docs/plugins.md, "Suggestions of the model".
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from app_server.extension.registration import ContributionContext

if TYPE_CHECKING:
    from protocol.plugin_suggestions import SuggestedPlugin


class PluginOffers(Protocol):
    """Which plugins could be installed for a thread."""

    def has_any(self, config: Mapping[str, Any]) -> bool:
        """Whether these settings name plugins to suggest; never waits, and reads nothing."""

    async def offered(self, config: Mapping[str, Any]) -> "Sequence[SuggestedPlugin]":
        """Return those that are not installed and that a marketplace has, by name."""

    async def is_complete(self, plugin: "SuggestedPlugin", context: ContributionContext) -> bool:
        """Whether a plugin is installed, with all that others must have for it."""

    async def decline(self, plugin_id: str) -> None:
        """Offer a plugin never again, and write that down.

        Raises:
            NotRecorded: it is not offered by this process, but is not written.
        """


class InstallCheck(Protocol):
    """Says whether what a plugin declares by id is there; somebody else knows what the ids mean."""

    async def verify_install(
        self, app_ids: Sequence[str], context: ContributionContext
    ) -> bool | None:
        """Return whether all of them are there; None if that is not this one's to say.

        It may ask others, and has a bound of its own.
        """
