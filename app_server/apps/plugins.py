"""The port through which apps use plugins; app_server/server connects the two.

Source: docs/apps.md, "Plugins".
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class PluginPort(Protocol):
    """Which plugins declare which connectors. Nothing here waits."""

    def revision(self) -> int:
        """Return a number that grows whenever `app_names` would say something else."""

    def app_names(
        self, config: Mapping[str, Any], thread_id: str | None = None
    ) -> Mapping[str, Sequence[str]]:
        """Return display names by connector id, of the plugins that settings and thread have."""
