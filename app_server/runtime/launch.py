"""Launch of a process: a value that one package hands to another."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

DEFAULT_READ_LIMIT_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Launch:
    """One process that is to be started, here or on another machine."""

    command: str
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables with their values; they win over inherited ones."""
    inherited: Sequence[str] = ()
    """Names of variables that are taken from where the process runs, if they are set there."""
    cwd: str | None = None
    """Working folder, as it is called where the process runs; None: that of its parent."""
    read_limit_bytes: int = DEFAULT_READ_LIMIT_BYTES
    """Longest line that can be read; at twice that much unread output the process has to wait."""

    def environment(self, parent: Mapping[str, str]) -> dict[str, str]:
        """Assemble the environment of the process, given that of its parent."""
        return {name: parent[name] for name in self.inherited if name in parent} | dict(self.env)
