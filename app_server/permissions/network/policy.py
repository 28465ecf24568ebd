"""Which hosts a proxy lets commands reach: from settings and rules to a verdict.

Domains are named `example.org`, or by a pattern: `*.example.org`, `**.example.org` and `*`.
Source: docs/tools.md, "Network through a proxy"; docs/config.md, "Network of commands".
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from app_server.permissions.network.target import Target, is_named_local, plain_host
from protocol.log.rollout import StoredNetwork

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
    """Say what becomes of a connection, before its host is resolved.

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
    """Return what the log of a thread has of a policy; see docs/wire.md, "Rollout lines"."""
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
