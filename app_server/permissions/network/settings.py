"""Network settings of commands, from config.toml.

`[permissions.NAME.network]` and `[features.network_proxy]` are tables of the same keys.
Source: docs/config.md, "Network of commands".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from app_server.config.requirements import NETWORK, requirements_of
from app_server.config.values import Config, ConfigError, ConfigView
from app_server.permissions.network.policy import EVERY, NetworkPolicy, plain_pattern
from app_server.permissions.network.target import BadHost

FEATURE = "network_proxy"

MAX_DOMAINS = 1_024
"""Patterns of one table."""

MODES = ("full", "limited")

DomainPermission: TypeAlias = Literal["allow", "deny"]
PERMISSIONS = ("allow", "deny")

WITHOUT_EFFECT = (
    "allow_upstream_proxy",
    "dangerously_allow_non_loopback_proxy",
    "enable_socks5_udp",
)
"""Booleans about a proxy with a port of its own, and about what this one does not do."""

ADDRESSES = ("proxy_url", "socks_url")
"""Keys of listening addresses of the proxy: each command has its own, in a network of its own."""

_KEYS = frozenset(
    (
        *("allow_local_binding", "domains", "enable_socks5", "enabled", "mode"),
        *WITHOUT_EFFECT,
        *ADDRESSES,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkTable:
    """Network settings of one table, or of several put over one another; None: not set."""

    enabled: bool | None = None
    domains: Mapping[str, DomainPermission] = field(default_factory=dict)
    """By pattern."""
    mode: str | None = None
    allow_local_binding: bool | None = None
    enable_socks5: bool | None = None
    is_closed: bool = False
    """Whether entries that others allow are ignored."""

    @property
    def restricts(self) -> bool:
        """Whether it says more than whether there is a network, so that a proxy has to hold it."""
        return NetworkTable(enabled=self.enabled) != self

    def over(self, other: "NetworkTable") -> "NetworkTable":
        """Return both; where both say something, this one counts."""
        others = other.domains
        if self.is_closed:
            others = {name: said for name, said in others.items() if said == "deny"}
        return NetworkTable(
            enabled=other.enabled if self.enabled is None else self.enabled,
            domains={**others, **self.domains},
            mode=self.mode or other.mode,
            allow_local_binding=_first(self.allow_local_binding, other.allow_local_binding),
            enable_socks5=_first(self.enable_socks5, other.enable_socks5),
            is_closed=self.is_closed or other.is_closed,
        )

    def policy(self) -> NetworkPolicy:
        """Return what it lets be reached."""
        return NetworkPolicy(
            allowed=tuple(name for name, said in self.domains.items() if said == "allow"),
            denied=tuple(name for name, said in self.domains.items() if said == "deny"),
            is_limited=self.mode == "limited",
            reaches_local=self.allow_local_binding is True,
            has_socks=self.enable_socks5 is not False,
            is_closed=self.is_closed,
        )


def read_network_table(view: ConfigView) -> NetworkTable:
    """Read a table.

    Raises:
        ConfigError: a value does not fit; or a key is not known here, as a restriction that nothing
            enforces must not become an open network.
    """
    for key in view.table:
        if key not in _KEYS:
            raise view.error(f"`{key}` is not supported of the network of commands", key)
    for key in WITHOUT_EFFECT:
        view.boolean(key, default=False)
    for key in ADDRESSES:
        view.string(key)
    return NetworkTable(
        enabled=view.boolean("enabled", None),
        domains=_domains(view.at("domains")),
        mode=view.choice("mode", MODES),
        allow_local_binding=view.boolean("allow_local_binding", None),
        enable_socks5=view.boolean("enable_socks5", None),
    )


def read_network_feature(config: Config) -> NetworkTable | None:
    """Read what holds for every network of commands; None if they have it without the proxy.

    That is `features.network_proxy`, a boolean or a table, and over it what an administrator
    demands. A table without `enabled` is on: who names domains wants them to hold.

    Raises:
        ConfigError: see `read_network_table`.
    """
    feature, demand = _feature(config), requirements_of(config).network
    if demand is None:
        return feature
    demanded = NetworkTable(
        domains=_plain(demand.domains, lambda text, key: ConfigError(f"{NETWORK}: {text}")),
        allow_local_binding=demand.allow_local_binding,
        is_closed=demand.allowed_domains_only,
    )
    return demanded.over(feature or NetworkTable())


def _feature(config: Config) -> NetworkTable | None:
    features = config.view().at("features")
    if not isinstance(features.table.get(FEATURE), dict):
        return NetworkTable() if features.boolean(FEATURE, default=False) else None
    table = read_network_table(features.at(FEATURE))
    return None if table.enabled is False else table


def _domains(view: ConfigView) -> Mapping[str, DomainPermission]:
    given = {key: view.choice(key, PERMISSIONS) or "" for key in view.table}
    return _plain(given, view.error)


def _plain(
    given: Mapping[str, str], error: Callable[[str, str | None], ConfigError]
) -> Mapping[str, DomainPermission]:
    if len(given) > MAX_DOMAINS:
        raise error(f"there may be at most {MAX_DOMAINS} domains", None)
    domains: dict[str, DomainPermission] = {}
    for key, said in given.items():
        try:
            pattern = plain_pattern(key)
        except BadHost as exc:
            raise error(f"domain `{key}`: {exc}", key) from exc
        if pattern == EVERY and said == "deny":
            raise error("`*` cannot be denied: without `enabled` there is no network", key)
        # Two spellings of one pattern: the stricter word counts.
        domains[pattern] = "deny" if "deny" in (said, domains.get(pattern)) else "allow"
    return domains


def _first(one: bool | None, other: bool | None) -> bool | None:
    return other if one is None else one
