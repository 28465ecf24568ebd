"""Which hosts commands may reach, where their network is the server's proxy. No I/O.

From top to bottom: the target of a connection, in one spelling for each host; the policy, from
settings and rules to a verdict; the settings. Domains are named `example.org`, or by a pattern:
`*.example.org`, `**.example.org` and `*`. `[permissions.NAME.network]` and
`[features.network_proxy]` are tables of the same keys. Does not know: sockets, commands.
Source: docs/tools.md, "Network through a proxy"; docs/config.md, "Network of commands".
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Literal, TypeAlias

from app_server.config.requirements import NETWORK, requirements_of
from app_server.config.values import Config, ConfigError, ConfigView
from protocol.log.rollout import StoredNetwork

TargetProtocol: TypeAlias = Literal["http", "https", "socks5Tcp"]
"""Protocol of a request to the proxy: HTTP with a whole URL, CONNECT, or SOCKS5."""

MAX_HOST_CHARS = 253
"""Of a name, as DNS has it."""

LOCALHOST = "localhost"

_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")
_TRANSLATED = ip_network("64:ff9b::/96")
"""IPv4 addresses as NAT64 writes them (RFC 6052)."""

Address: TypeAlias = IPv4Address | IPv6Address


class BadHost(ValueError):
    """A text that is no host; the text of this says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """A host and a port, and how they were asked for."""

    host: str
    """As `plain_host` returns it."""
    port: int
    protocol: TargetProtocol

    def shown(self) -> str:
        """Return it as a URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.protocol}://{host}:{self.port}"


def plain_host(text: str) -> str:
    """Return a host in lower case, without brackets, and without dots at its end.

    A name whose last part is a number is read as an IPv4 address, as resolvers do, and must be
    written as one: `127.1` and `2130706433` are other spellings of `127.0.0.1`.

    Raises:
        BadHost: it is neither a name of ASCII characters nor an address without a zone.
    """
    host = text.strip().lower()
    host = host[1:-1] if host.startswith("[") and host.endswith("]") else host.rstrip(".")
    address = address_of(host)
    if address is not None:
        if "%" in host:
            raise BadHost("an address must not have a zone")
        return str(address)
    if len(host) > MAX_HOST_CHARS or _NAME.fullmatch(host) is None:
        raise BadHost("it must be a name of letters, digits, `-`, `_` and dots, or an address")
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        raise BadHost("an IPv4 address must be four numbers")
    return host


def address_of(host: str) -> Address | None:
    """Return the address that a host is; None for a name."""
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_named_local(host: str) -> bool:
    """Whether a host is local by its name; others may still resolve to local addresses."""
    address = address_of(host)
    if address is not None:
        return is_local(address)
    return host == LOCALHOST or host.endswith(f".{LOCALHOST}")


def is_local(address: Address) -> bool:
    """Whether an address is not of the public Internet: this machine, private networks, others."""
    inner = _within(address)
    if inner is not None:
        return is_local(inner)
    if isinstance(address, IPv6Address) and address.is_site_local:
        return True
    return not address.is_global or address.is_multicast or address.is_reserved


def is_this_machine(address: Address) -> bool:
    """Whether connecting to an address reaches this machine whatever its networks are."""
    inner = _within(address)
    if inner is not None:
        return is_this_machine(inner)
    return address.is_loopback or address.is_unspecified


def _within(address: Address) -> IPv4Address | None:
    """Return the IPv4 address that an IPv6 address leads to; None if it is no such address."""
    if isinstance(address, IPv4Address):
        return None
    if address in _TRANSLATED:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour


EVERY = "*"
BELOW = "*."
"""A domain's subdomains, and not itself."""
WITHIN = "**."
"""A domain and its subdomains."""


def plain_pattern(text: str) -> str:
    """Return a pattern with its host as `plain_host` returns it.

    Raises:
        BadHost: it is no pattern.
    """
    pattern = text.strip()
    if pattern == EVERY:
        return pattern
    for sign in (WITHIN, BELOW):
        if pattern.startswith(sign):
            return sign + plain_host(pattern.removeprefix(sign))
    return plain_host(pattern)


def matches_any(patterns: Iterable[str], host: str) -> bool:
    """Whether a pattern matches a host; both are plain."""
    return any(_matches(pattern, host) for pattern in patterns)


def _matches(pattern: str, host: str) -> bool:
    if pattern.startswith(WITHIN):
        domain = pattern.removeprefix(WITHIN)
        return host == domain or host.endswith(f".{domain}")
    if pattern.startswith(BELOW):
        return host.endswith(pattern.removeprefix("*"))
    return pattern in (EVERY, host)


Verdict: TypeAlias = Literal[
    "allow", "ask", "denied", "not_allowed", "not_allowed_local", "method_not_allowed"
]
"""Verdict on a connection: `ask` where nothing says anything of the host. The last four
refuse it: by a denied domain or rule, because nobody allowed it, as it is local, by `limited`."""

READING = ("GET", "HEAD", "OPTIONS")
"""Methods of a limited network."""


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """Network policy of commands: the hosts that they reach through the proxy."""

    allowed: tuple[str, ...] = ()
    """Patterns of domains."""
    denied: tuple[str, ...] = ()
    """Patterns of domains; they win."""
    is_limited: bool = False
    """Only plain HTTP, and of it what reads."""
    reaches_local: bool = False
    """Whether this machine and private networks count as other hosts do."""
    has_socks: bool = True
    is_closed: bool = False
    """Whether `allowed` alone allows hosts: no rule does, and no user is asked."""

    def may_be_local(self, host: str) -> bool:
        """Whether a host may lead to a local address: if all may, or if it is allowed by name.

        A name that resolves to a local address is not enough: whoever has the name chooses that.
        """
        return self.reaches_local or (is_named_local(host) and host in self.allowed)


@dataclass(frozen=True, slots=True)
class NetworkRule:
    """Decision on connections to one host: `network_rule` of a file of rules."""

    host: str
    """As `plain_host` returns it."""
    protocol: str
    """`http`, `https`, `socks5Tcp` or `socks5Udp`."""
    decision: Literal["allow", "prompt", "forbidden"]
    justification: str | None = None


def verdict_on(target: Target, policy: NetworkPolicy, rules: Sequence[NetworkRule]) -> Verdict:
    """Return the verdict over a connection, before its host is resolved.

    A rule that forbids a host does so for every protocol; one that allows it or wants somebody to
    be asked is for its own.
    """
    about = [rule for rule in rules if rule.host == target.host]
    if matches_any(policy.denied, target.host) or any(r.decision == "forbidden" for r in about):
        return "denied"
    if policy.is_limited and target.protocol != "http":
        return "method_not_allowed"
    if is_named_local(target.host) and not policy.may_be_local(target.host):
        return "not_allowed_local"
    is_allowed = matches_any(policy.allowed, target.host)
    if policy.is_closed:
        return "allow" if is_allowed else "not_allowed"
    said = {rule.decision for rule in about if rule.protocol == target.protocol}
    if "prompt" in said:
        return "ask"
    return "allow" if is_allowed or "allow" in said else "ask"


def stored(policy: NetworkPolicy) -> StoredNetwork:
    """Render a policy for the log of a thread; see docs/wire.md, "Rollout lines"."""
    return StoredNetwork(
        allowed=list(policy.allowed),
        denied=list(policy.denied),
        limited=policy.is_limited,
        local=policy.reaches_local,
        socks=policy.has_socks,
    )


def policy_of(network: StoredNetwork) -> NetworkPolicy:
    """Return the policy that was written."""
    return NetworkPolicy(
        allowed=tuple(network.allowed),
        denied=tuple(network.denied),
        is_limited=network.limited,
        reaches_local=network.local,
        has_socks=network.socks,
    )


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
        """Return the policy of these settings."""
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
    """Read the proxy settings of all commands; None if the feature is off.

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
