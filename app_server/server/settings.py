"""Settings that a server is started with."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app_server.config.effective import ConfigSources
from app_server.config.requirements import SYSTEM_REQUIREMENTS
from app_server.config.store_url import LEASE_S, StoreUrl
from app_server.rpc.message_stream import ConnectionLimits
from app_server.runtime.user_paths import expand_user
from app_server.transport.address import Address
from app_server.transport.guards import ListenerGuards
from app_server.transport.websocket import WebSocketLimits

if TYPE_CHECKING:
    from app_server.config.node import GroupSettings
    from app_server.extensions.contract.registry import ExtensionRegistry
    from app_server.handlers.integrations.apps_port import AppsPort
    from app_server.runtime.clock import Clock

DRAIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of one server, fixed at its start."""

    home: Path
    listen: Sequence[Address]
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Of config.toml, from the command line."""
    profile: str | None = None
    """Settings over those of config.toml: `NAME.config.toml` in the home folder."""
    is_strict: bool = False
    """Whether a key of the configuration that nothing reads is an error."""
    store: StoreUrl | None = None
    """The database that threads are kept in, where the command line or a variable names one."""
    node: "GroupSettings | None" = None
    """How other servers of the database reach this one, once the files were read."""
    lease_s: int = LEASE_S
    """Seconds that this server's lease in a database lasts."""
    requirements: Path = SYSTEM_REQUIREMENTS
    """File with the requirements of an administrator; only tests have another one."""
    cwd: Path = field(default_factory=Path.cwd)
    user_home: Path = field(default_factory=partial(expand_user, "~"))
    """The home folder of the user; only tests have another one."""
    watches_files: bool = True
    """Whether idle threads and clients are notified of edits; tests of reloads go without."""
    drain_s: float = DRAIN_S
    """Seconds for which running turns may go on after the first signal to stop."""
    connection: ConnectionLimits = field(default_factory=ConnectionLimits)
    websocket: WebSocketLimits = field(default_factory=WebSocketLimits)
    guards: ListenerGuards = field(default_factory=ListenerGuards)
    """Requirements for clients of `ws://` addresses."""

    @property
    def sources(self) -> ConfigSources:
        """Sources of the configuration."""
        return ConfigSources(self.home, self.cwd, self.requirements, self.overrides, self.profile)


@dataclass(frozen=True, slots=True, kw_only=True)
class Substitutes:
    """Substitutes of tests for services; None leaves the real one."""

    extensions: "ExtensionRegistry | None" = None
    """With it there are no apps and no plugins of the real ones."""
    apps: "AppsPort | None" = None
    """Taken where `extensions` are given."""
    clock: "Clock | None" = None
