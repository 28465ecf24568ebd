"""What the checks look at."""

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from app_server.config.effective import ConfigSources, Configuration
from app_server.config.reading import profile_file, read_config, with_profile
from app_server.config.requirements import SYSTEM_REQUIREMENTS
from app_server.config.values import Config
from app_server.host.sandbox.launcher import SandboxLauncher


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """A home, and the machine around it. Only tests have other than the defaults."""

    home: Path
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Of config.toml, from the command line."""
    profile: str | None = None
    """The name of the profile that a server is to be started with."""
    listen: Sequence[str] = ()
    """Addresses that a server is to listen on."""
    requirements: Path = SYSTEM_REQUIREMENTS
    cwd: Path = field(default_factory=Path.cwd)
    now_s: Callable[[], float] = time.time
    """Unix seconds."""
    sandbox: SandboxLauncher = field(default_factory=SandboxLauncher)
    progress: Callable[[str], None] = lambda _: None
    """Is called with what takes long."""

    @property
    def config_file(self) -> Path:
        """Where the user's settings are, or would be."""
        return self.home / "config.toml"

    @property
    def profile_file(self) -> Path | None:
        """Where those of the profile are, or would be.

        Raises:
            ConfigError: it cannot be the name of a profile.
        """
        return None if self.profile is None else profile_file(self.home, self.profile)

    def read_files(self) -> Config:
        """Read config.toml and the profile over it, without the overrides. Blocks.

        Raises:
            ConfigError: one of them cannot be used.
        """
        config = read_config(self.config_file)
        if self.profile is None or self.profile_file is None:
            return config
        return with_profile(config, self.profile, self.profile_file)

    def configuration(
        self, is_signed_in: Callable[[], Awaitable[bool]] | None = None
    ) -> Configuration:
        """Make what a server reads its settings with."""
        sources = ConfigSources(
            self.home, self.cwd, self.requirements, self.overrides, self.profile
        )
        return Configuration(sources, is_signed_in)
