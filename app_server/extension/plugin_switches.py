"""Plugins that a thread goes without, though they are installed or chosen for it.

Source: docs/plugins.md, "Plugins of a thread".
"""

from collections.abc import Collection
from typing import Protocol


class PluginSwitches(Protocol):
    """Knows which plugins threads have."""

    def switch_off(self, thread_id: str, ids: Collection[str]) -> None:
        """Have a thread go without these plugins, and with all others; never waits.

        Its servers follow before its next model request. Without `ids` nothing is remembered of
        the thread.
        """
