"""The bounds of a proxy.

Source: docs/tools.md, "Network through a proxy".
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ProxyBounds:
    """The bounds of one command's proxy; times are seconds."""

    connections: int = 256
    """At a time; further ones are closed."""
    head_bytes: int = 65_536
    """Of the first lines of a request, and of a response."""
    head_s: float = 30.0
    """For a client to say where it wants to go."""
    connect_s: float = 30.0
    """For resolving a name and reaching one of its addresses."""
    idle_s: float = 900.0
    """Without a byte in either direction, and at the end until what waits is taken; then it is
    closed."""
    piece_bytes: int = 65_536
    """Bytes of one read, which are written before the next one."""
    addresses: int = 8
    """Of one name that are tried."""


BOUNDS = ProxyBounds()
