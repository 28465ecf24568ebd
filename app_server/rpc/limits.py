"""Bounds of one connection. Light: a server has them before it loads what holds conversations."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OutboxLimits:
    """Bounds of the queue of messages to one client."""

    merge_above: int = 256
    """Messages; beyond it deltas of one item are merged and the client's requests are not read."""
    max_messages: int = 8192
    max_chars: int = 16 * 1024 * 1024
    """Characters of all waiting messages together, without large answers."""
    max_large_chars: int = 128 * 1024 * 1024
    """Characters of all waiting large answers together; the next one is not queued before."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Bounds of one connection."""

    max_in_flight: int = 256
    """Requests being worked on; one more is answered -32001."""
    max_in_flight_chars: int = 128 * 1024 * 1024
    """Of the texts of these requests together; one that comes on top is answered -32001."""
    finish_s: float = 5.0
    """Seconds for requests after the client has finished sending, and for each write after that."""
    outbox: OutboxLimits = field(default_factory=OutboxLimits)
