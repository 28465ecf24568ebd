"""What the checks look at."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app_server.config.requirements import SYSTEM_REQUIREMENTS
from app_server.host.sandbox.launcher import SandboxLauncher


def _say_nothing(text: str) -> None:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A home, and the machine around it. Only tests have other than the defaults."""

    home: Path
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Of config.toml, from the command line."""
    listen: Sequence[str] = ()
    """Addresses that a server is to listen on."""
    requirements: Path = SYSTEM_REQUIREMENTS
    cwd: Path = field(default_factory=Path.cwd)
    now_s: Callable[[], float] = time.time
    """Unix seconds."""
    sandbox: SandboxLauncher = field(default_factory=SandboxLauncher)
    progress: Callable[[str], None] = _say_nothing
    """Hears what takes long."""
