"""Interfaces of plugins for threads: mentions, switches, offers to install.

Source: docs/plugins.md, "In turns", "Plugins of a thread", "Suggestions of the model".
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from app_server.extensions.contract.registration import ContributionContext
from protocol.turns.items import UserInput

if TYPE_CHECKING:
    from protocol.integrations.suggestions import SuggestedPlugin

PLUGIN_SCHEME = "plugin://"
"""Before the id of a plugin, in the path of a mention and in a link."""


@dataclass(frozen=True, slots=True)
class NamedPlugin:
    """A plugin of the thread that the user named."""

    id: str
    display_name: str
    skills_prefix: str | None
    """Prefix of the names of its skills, before a colon; None: no skill of it is on."""


class PluginMentions(Protocol):
    """Knows which plugins there are."""

    def named(
        self, content: Sequence[UserInput], context: ContributionContext
    ) -> Sequence[NamedPlugin]:
        """Return the plugins in force that a message names, each once; never waits."""


class PluginSwitches(Protocol):
    """Knows which plugins threads have."""

    def switch_off(self, thread_id: str, ids: Collection[str]) -> None:
        """Have a thread go without these plugins, and with all others; never waits.

        Its servers follow before its next model request. Without `ids` nothing is remembered of
        the thread.
        """


class PluginOffers(Protocol):
    """Which plugins could be installed for a thread."""

    def has_any(self, config: Mapping[str, Any]) -> bool:
        """Whether these settings name plugins to suggest; never waits, and reads nothing."""

    async def offered(self, config: Mapping[str, Any]) -> "Sequence[SuggestedPlugin]":
        """Return the plugins to suggest, by name: in a marketplace, and not installed."""

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
