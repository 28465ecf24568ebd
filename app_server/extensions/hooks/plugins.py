"""Origins of the hooks of plugins, and the variables that these hooks get.

Source: docs/hooks.md, "Hooks of plugins".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias


class Declaration(NamedTuple):
    """Hooks that a plugin declares in one place."""

    name: str
    """The place, as keys of hooks name it: a path below the plugin, or a member of its manifest."""
    file: Path
    hooks: Mapping[str, Any]
    """By event, as in the file."""


@dataclass(frozen=True, slots=True)
class HookedPlugin:
    """A plugin that may bring hooks."""

    id: str
    root: Path
    data: Path
    """A folder for what its hooks keep; it is not made for them."""
    read: Callable[[], tuple[Sequence[Declaration], Sequence[tuple[Path, str]]]]
    """Reads what it declares, and the files that cannot be read, with the reason; blocks."""


OfPlugins: TypeAlias = Callable[[Mapping[str, Any]], Sequence[HookedPlugin]]
"""Gives the plugins that settings have; never waits."""


@dataclass(frozen=True, slots=True)
class Origin:
    """The plugin and the place that a hook comes from."""

    plugin_id: str
    name: str
    root: Path
    data: Path
    fingerprint: str
    """Of the whole plugin, which is trusted with its hook."""

    @property
    def variables(self) -> Mapping[str, str]:
        """Variables added to the environment of a hook."""
        root, data = str(self.root), str(self.data)
        return {
            "PLUGIN_ROOT": root,
            "CLAUDE_PLUGIN_ROOT": root,
            "PLUGIN_DATA": data,
            "CLAUDE_PLUGIN_DATA": data,
        }

    def filled_in(self, command: str) -> str:
        """Put the folders into a command, where it names them as `${NAME}`."""
        for name, value in self.variables.items():
            command = command.replace(f"${{{name}}}", value)
        return command
