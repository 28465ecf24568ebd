"""Patterns of domains: `example.org`, `*.example.org`, `**.example.org` and `*`.

Source: docs/config.md, "Network of commands".
"""

from collections.abc import Iterable

from app_server.permissions.network.target import plain_host

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
