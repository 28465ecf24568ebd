"""Plugins that a user names in a message: who knows them, and what is to be said of them.

Source: docs/plugins.md, "In turns".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from app_server.extension.registration import ContributionContext
from protocol.items import UserInput

PLUGIN_SCHEME = "plugin://"
"""Before the id of a plugin, in the path of a mention and in a link."""


@dataclass(frozen=True, slots=True)
class NamedPlugin:
    """A plugin of the thread that the user named."""

    id: str
    display_name: str
    skills_prefix: str | None
    """What the names of its skills begin with, before a colon; None: it has none that is on."""


class PluginMentions(Protocol):
    """Knows which plugins there are."""

    def named(
        self, content: Sequence[UserInput], context: ContributionContext
    ) -> Sequence[NamedPlugin]:
        """Return the plugins in force that a message names, each once; never waits."""
